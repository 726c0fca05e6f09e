/** `svc metrics`: what is measured of a resource, drawn in the terminal. */

import * as Clock from "effect/Clock"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { measurementNames, measurements } from "#schemas/signal.ts"
import { Client, call } from "#src/cli/client.ts"
import { address, asJson, connection, online, resolve } from "#src/cli/flags.ts"
import { json, jsonLine, out, paint, say, table } from "#src/cli/output.ts"
import { aggregations } from "./api.ts"
import { chart, shown, sparkline } from "./drawing.ts"

/** In hours. */
const spans = { "15m": 0.25, "1h": 1, "6h": 6, "24h": 24, "7d": 168, "30d": 720, "13mo": 9_480 } as const
const spanNames = Object.keys(spans) as ReadonlyArray<string> as ReadonlyArray<keyof typeof spans>

/** Characters of a line of blocks, and of a chart. */
const columns = { line: 40, chart: 72 }

export const metrics = Command.make(
  "metrics",
  {
    ...connection,
    json: asJson,
    address,
    measurement: Flag.Literals("measurement", measurementNames).pipe(
      Flag.withAlias("m"),
      Flag.withDescription("Only this one, as a chart; may be given several times"),
      Flag.atLeast(0)
    ),
    last: Flag.Literals("last", spanNames).pipe(
      Flag.withDescription("How far back"),
      Flag.withDefault("1h" as const)
    ),
    aggregation: Flag.Literals("aggregation", aggregations).pipe(
      Flag.withDescription("What a column tells of its samples; sum is of rates alone"),
      Flag.withDefault("avg" as const)
    ),
    watch: Flag.Boolean("watch").pipe(
      Flag.withAlias("w"),
      Flag.withDescription("Again every 15 seconds"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid, kind } = yield* resolve(flags.address)
        const params = { orgId: org, uid }
        const asChart = flags.measurement.length > 0
        const look = Effect.gen(function* () {
          const to = yield* Clock.currentTimeMillis
          const from = to - spans[flags.last] * 3_600_000
          const wide = asChart ? columns.chart : columns.line
          const now = yield* call(asMember.metrics.list({ params }))
          const past = yield* call(
            asMember.metrics.query({
              params,
              payload: {
                ...(asChart ? { measurements: flags.measurement } : {}),
                from: DateTime.makeUnsafe(from),
                to: DateTime.makeUnsafe(to),
                stepSeconds: Math.min(86_400, Math.max(15, Math.ceil((to - from) / 1_000 / wide))),
                aggregation: flags.aggregation
              }
            })
          )
          if (flags.json) return yield* (flags.watch ? jsonLine : json)({ now, past })
          if (asChart) {
            const times = { from: past.from, to: new Date(to).toISOString() }
            for (const { measurement, unit, values } of past.series) {
              const { meaning } = measurements[measurement]
              yield* out(`${paint("bold", measurement)}  ${meaning} (${flags.aggregation})`)
              yield* out(`${chart(values, unit, times)}\n`)
            }
            return
          }
          const newest = new Map(now.measurements.map((one) => [one.measurement, one]))
          const rows = past.series.flatMap(({ measurement, unit, values }) => {
            const latest = newest.get(measurement)
            const numbers = values.filter((value) => value !== null)
            if (latest === undefined && numbers.length === 0) return []
            const [least, greatest] =
              numbers.length === 0 ? [null, null] : [Math.min(...numbers), Math.max(...numbers)]
            const stale = latest !== undefined && latest.ageSeconds > 90
            const value = shown(latest?.value ?? null, unit)
            return [
              [
                measurement,
                stale ? paint("yellow", `${value} (${shown(latest.ageSeconds, "seconds")} ago)`) : value,
                shown(least, unit),
                shown(greatest, unit),
                sparkline(values)
              ]
            ]
          })
          if (rows.length === 0) return yield* say(`Nothing has been measured of this ${kind} in this time`)
          yield* out(table(["MEASUREMENT", "NOW", "LEAST", "GREATEST", flags.last.toUpperCase()], rows))
          if (!now.history) yield* say("Only the newest measurements of this resource are kept")
        })
        yield* flags.watch ? Effect.repeat(look, Schedule.spaced("15 seconds")) : look
      })
    )
).pipe(Command.withDescription("Show what is measured of a resource: now, and how it went"))
