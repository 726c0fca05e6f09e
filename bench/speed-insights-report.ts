/**
 * A process that makes the report of a month several times: what it takes, and how far its memory grows from what it has
 * after a report of a day. Arguments: the store's URL, whose report (`Place`), its beginning, its days and how often.
 */
import * as fs from "node:fs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { Measurements } from "#src/speed-insights/Measurements.ts"
import { hourMs, reportOf } from "#src/speed-insights/report.ts"
import { Db } from "#src/store/Db.ts"
import type { Place } from "./speed-insights-days.ts"

export interface Made {
  readonly samples: number
  readonly ms: number
  readonly cpuMs: number
  readonly mb: number
}

const [url = "", place = "", from = "", days = "", times = ""] = process.argv.slice(2)
const of: Place = JSON.parse(place)

const report = Effect.fnUntraced(function* (days: number) {
  const wanted = {
    ...of,
    from: new Date(from),
    until: new Date(new Date(from).getTime() + days * 24 * hourMs),
    device: undefined,
    route: undefined
  }
  return reportOf(yield* (yield* Measurements).find(wanted), wanted, "hour").summary
})

const memory = (field: "VmHWM" | "VmRSS"): number =>
  (Number(new RegExp(`${field}:\\s+(\\d+)`).exec(fs.readFileSync("/proc/self/status", "utf8"))?.[1]) *
    1_024) /
  1e6

const made = Effect.gen(function* () {
  globalThis.gc?.()
  // proc(5): from now on the peak (VmHWM) is that of what follows.
  fs.writeFileSync("/proc/self/clear_refs", "5")
  const before = memory("VmRSS")
  const cpu = process.cpuUsage()
  const start = performance.now()
  const { samples } = yield* report(Number(days))
  const ms = performance.now() - start
  const { user, system } = process.cpuUsage(cpu)
  return { samples, ms, cpuMs: (user + system) / 1_000, mb: memory("VmHWM") - before } satisfies Made
})

Effect.runPromise(
  Effect.andThen(report(1), Effect.replicateEffect(made, Number(times))).pipe(
    Effect.provide(Measurements.layer.pipe(Layer.provide(Db.layer({ url: Redacted.make(url) }))))
  )
).then((all) => console.log(JSON.stringify(all)))
