/**
 * Values over time, drawn. What it shows is also said in words, by the caller's `says`. The drawing library and its style
 * sheet are loaded with the first chart.
 */
import { useEffect, useRef } from "react"
import UPlot from "uplot"
import "uplot/dist/uPlot.min.css"

export interface Line {
  readonly name: string
  /** One for each moment; null: there was no sample. */
  readonly values: ReadonlyArray<number | null>
}

/** A variable of the style sheet, as the scheme in force has it. */
const colourOf = (element: HTMLElement, name: string): string => {
  const probe = document.createElement("span")
  probe.style.color = `var(${name})`
  element.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

const height = 150
const powersOfTwo = Array.from({ length: 60 }, (_, exponent) => 2 ** exponent)
/** In this order; more lines than these are not told apart. */
const strokes = ["--accent", "--wait", "--ok", "--bad"] as const

const Chart = ({
  times,
  lines,
  format,
  thresholds = [],
  says,
  bars = false,
  binary = false
}: {
  /** Milliseconds. */
  readonly times: ReadonlyArray<number>
  readonly lines: ReadonlyArray<Line>
  readonly format: (value: number) => string
  /** Values at which a line is drawn across. */
  readonly thresholds?: ReadonlyArray<number>
  readonly says: string
  readonly bars?: boolean
  /** Values are bytes, and their marks powers of two. */
  readonly binary?: boolean
}) => {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<UPlot>(undefined)
  const formatting = useRef(format)
  formatting.current = format
  const names = lines.map(({ name }) => name).join("\n")
  const levels = thresholds.join(" ")

  useEffect(() => {
    const { current } = box
    if (current === null) return
    const shownNames = names.split("\n")
    const shownLevels = levels === "" ? [] : levels.split(" ").map(Number)
    const make = () => {
      const [soft, line] = [colourOf(current, "--soft"), colourOf(current, "--line")]
      const axis = {
        stroke: soft,
        font: "12px system-ui, sans-serif",
        grid: { stroke: line, width: 1 },
        ticks: { stroke: line, width: 1 }
      }
      const data: UPlot.AlignedData = plot.current?.data ?? [[]]
      plot.current?.destroy()
      plot.current = new UPlot(
        {
          width: Math.max(120, current.clientWidth),
          height,
          ms: 1,
          legend: { show: false },
          cursor: { drag: { setScale: false, x: false, y: false }, points: { show: false } },
          scales: {
            y: {
              range: (_plot, _min, max) => [0, (Math.max(max ?? 0, ...shownLevels) || 1) * 1.08]
            }
          },
          axes: [
            { ...axis, space: 80, size: 30 },
            {
              ...axis,
              size: 78,
              ...(binary ? { incrs: powersOfTwo } : {}),
              space: 34,
              values: (_plot, splits) => splits.map((at) => formatting.current(at))
            }
          ],
          series: [
            {},
            ...shownNames.map((label, index) => ({
              label,
              stroke: colourOf(current, strokes[index] ?? "--soft"),
              width: 1.5,
              points: { size: 4 },
              ...(bars
                ? {
                    paths: UPlot.paths.bars?.({ size: [0.7, 40] }) ?? (() => null),
                    fill: colourOf(current, "--accent")
                  }
                : {})
            }))
          ],
          hooks: {
            draw: [
              (drawn) => {
                const { ctx, bbox } = drawn
                ctx.save()
                ctx.strokeStyle = colourOf(current, "--wait")
                ctx.setLineDash([4, 4])
                for (const level of shownLevels) {
                  const y = drawn.valToPos(level, "y", true)
                  ctx.beginPath()
                  ctx.moveTo(bbox.left, y)
                  ctx.lineTo(bbox.left + bbox.width, y)
                  ctx.stroke()
                }
                ctx.restore()
              }
            ]
          }
        },
        data,
        current
      )
    }
    make()
    const resizing = new ResizeObserver(() =>
      plot.current?.setSize({ width: Math.max(120, current.clientWidth), height })
    )
    resizing.observe(current)
    const scheme = matchMedia("(prefers-color-scheme: dark)")
    scheme.addEventListener("change", make)
    return () => {
      scheme.removeEventListener("change", make)
      resizing.disconnect()
      plot.current?.destroy()
      plot.current = undefined
    }
  }, [names, levels, bars, binary])

  useEffect(() => {
    plot.current?.setData([[...times], ...lines.map(({ values }) => [...values])])
  }, [times, lines, names, levels, bars, binary])

  return <div ref={box} role="img" aria-label={says} className="min-h-[150px] w-full overflow-hidden" />
}
export default Chart
