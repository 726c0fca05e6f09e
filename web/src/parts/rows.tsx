/** Long lists: only the rows that are seen, and some around them, are in the page. All rows are equally high. */
import { type ReactNode, useEffect, useRef, useState } from "react"

const spare = 12

export const Rows = <A,>({
  of,
  height,
  keyOf,
  label,
  children
}: {
  readonly of: ReadonlyArray<A>
  /** Pixels of one row. */
  readonly height: number
  readonly keyOf: (row: A) => string
  readonly label: string
  readonly children: (row: A) => ReactNode
}) => {
  const list = useRef<HTMLUListElement>(null)
  const [seen, setSeen] = useState({ from: 0, to: 40 })

  useEffect(() => {
    const look = () => {
      const top = list.current?.getBoundingClientRect().top ?? 0
      const from = Math.max(0, Math.floor(-top / height) - spare)
      const to = Math.ceil((innerHeight - top) / height) + spare
      setSeen((before) => (before.from === from && before.to === to ? before : { from, to }))
    }
    look()
    addEventListener("scroll", look, { passive: true })
    addEventListener("resize", look)
    return () => {
      removeEventListener("scroll", look)
      removeEventListener("resize", look)
    }
  }, [height])

  const from = Math.min(seen.from, Math.max(0, of.length - 1))
  return (
    <ul ref={list} aria-label={label} className="relative" style={{ height: of.length * height }}>
      {of.slice(from, seen.to).map((row, index) => (
        <li
          key={keyOf(row)}
          aria-setsize={of.length}
          aria-posinset={from + index + 1}
          className="absolute inset-x-0 overflow-hidden"
          style={{ height, top: (from + index) * height }}
        >
          {children(row)}
        </li>
      ))}
    </ul>
  )
}
