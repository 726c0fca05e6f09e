/**
 * How often servers were started again in the last hour. What was seen is kept in a file, so that neither a new control
 * plane nor a new boot of the machine makes it forget; it is written when something was started, and so hardly ever.
 */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Host } from "#src/infra/host/Host.ts"

const hourMs = 3_600_000
/** One that starts again and again is told of with this number. */
const most = 1_000

const Starts = Schema.Record(
  Schema.String,
  Schema.Struct({
    /** The run that was seen last. */
    run: Schema.String,
    /** When others after it were seen first, of the last hour. */
    again: Schema.Array(Schema.Number)
  })
)
const Text = Schema.fromJsonString(Starts)

export const makeStarts = (host: Pick<Host["Service"], "readFile" | "writeFile">, folder: string) => {
  const file = path.join(folder, "starts.json")
  let starts: Map<string, { readonly run: string; readonly again: ReadonlyArray<number> }> | undefined

  const load = Effect.gen(function* () {
    const text = Option.getOrElse(yield* host.readFile(file), () => "{}")
    // One that cannot be understood counts as none: an hour later all is as it was.
    const read = Option.getOrElse(yield* Effect.option(Schema.decodeUnknownEffect(Text)(text)), () => ({}))
    return new Map(Object.entries(read))
  })

  return {
    /** The file may have been written by somebody else meanwhile. */
    forget: () => {
      starts = undefined
    },
    /** How often each server was started again; those that are not named are gone. `run`: undefined while it does not run. */
    note: Effect.fnUntraced(function* (runs: ReadonlyMap<string, string | undefined>, nowMs: number) {
      const before = starts ?? (yield* load)
      const now: typeof before = new Map()
      let changed = [...before.keys()].some((key) => !runs.has(key))
      for (const [key, run] of runs) {
        const last = before.get(key)
        const again = (last?.again ?? []).filter((at) => at > nowMs - hourMs && at <= nowMs)
        if (run === undefined || run === last?.run) {
          if (last !== undefined) now.set(key, { run: last.run, again })
          continue
        }
        changed = true
        now.set(key, { run, again: last === undefined ? again : [...again, nowMs].slice(-most) })
      }
      starts = now
      if (changed) {
        const text = yield* Effect.orDie(Schema.encodeEffect(Text)(Object.fromEntries(now)))
        yield* host.writeFile(file, text)
      }
      return new Map([...now].map(([key, { again }]) => [key, again.length]))
    })
  }
}
