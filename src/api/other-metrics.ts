/** Metrics of more than one thread as one page. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"

/** What other threads of the process have counted, each as a page of its own. */
export const OtherMetrics = Context.Reference<Effect.Effect<ReadonlyArray<string>>>("svc/api/OtherMetrics", {
  defaultValue: () => Effect.succeed([])
})

interface Family {
  readonly help: Array<string>
  kind: string
  readonly series: Map<string, number>
}

const larger = (a: number, b: number) => Math.max(a, b)
const sum = (a: number, b: number) => a + b

/**
 * A name stands once on a page (Prometheus, exposition formats). What several threads have counted is added up; of a gauge
 * the largest is told.
 */
export const mergePages = (pages: ReadonlyArray<string>): string => {
  if (pages.length < 2) return pages.join("")
  const families = new Map<string, Family>()
  for (const page of pages) {
    let family: Family | undefined
    for (const line of page.split("\n")) {
      const [, what, name] = /^# (HELP|TYPE) (\S+)/.exec(line) ?? []
      if (name !== undefined) {
        family = families.get(name) ?? { help: [], kind: "", series: new Map() }
        families.set(name, family)
        if (what === "TYPE") family.kind = line
        else if (family.help.length === 0) family.help.push(line)
        continue
      }
      const [, series, digits] = /^(.+) (\S+)$/.exec(line) ?? []
      if (series === undefined || family === undefined) continue
      const value = Number(digits?.replace("Inf", "Infinity"))
      const before = family.series.get(series)
      const together = family.kind.endsWith(" gauge") ? larger : sum
      family.series.set(series, before === undefined ? value : together(before, value))
    }
  }
  const lines = [...families.values()].flatMap(({ help, kind, series }) => [
    ...help,
    ...(kind === "" ? [] : [kind]),
    ...[...series].map(([name, value]) => `${name} ${String(value).replace("Infinity", "Inf")}`)
  ])
  return `${lines.join("\n")}\n`
}
