/**
 * Of the control planes that share a data folder, one measures what is there. Its file says who, and is touched at every
 * look; another one takes over when the process is gone or has not touched it for a while. Two that begin in one moment
 * may both measure once, which costs nothing but that.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Host } from "#src/infra/host/Host.ts"

const Text = Schema.fromJsonString(Schema.Struct({ pid: Schema.Int, token: Schema.String }))
/** So long does a file count that nobody touches. */
const staleMs = 45_000
/** In this time, whoever else has found the file as it was has written it as well. */
const settleMs = 250

export const makeOneSampler = (
  host: Pick<Host["Service"], "readFile" | "writeFile" | "isRunning">,
  folder: string
) => {
  const file = path.join(folder, "sampler.json")
  const me = { pid: process.pid, token: randomBytes(8).toString("hex") }
  const read = Effect.gen(function* () {
    const text = yield* host.readFile(file)
    return Option.getOrUndefined(
      yield* Effect.option(Schema.decodeUnknownEffect(Text)(Option.getOrElse(text, () => "")))
    )
  })
  const isMine = Effect.map(read, (now) => now?.token === me.token)

  const isActive = Effect.fnUntraced(function* ({ pid }: { readonly pid: number }) {
    if (pid !== me.pid && !(yield* host.isRunning(pid, ""))) return false
    const touchedAt = yield* Effect.promise(() =>
      fs.stat(file).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0
      )
    )
    // A clock that was set back must not keep it for ever.
    return Math.abs((yield* Clock.currentTimeMillis) - touchedAt) < staleMs
  })

  return {
    /** Whether it is this process's to measure now. */
    isMine: Effect.gen(function* () {
      const now = yield* read
      const at = (yield* Clock.currentTimeMillis) / 1000
      if (now?.token === me.token) {
        // Somebody may have removed it.
        yield* Effect.promise(() => fs.utimes(file, at, at).catch(() => undefined))
        return true
      }
      if (now !== undefined && (yield* isActive(now))) return false
      yield* host.writeFile(file, yield* Effect.orDie(Schema.encodeEffect(Text)(me)))
      yield* Effect.promise(() => fs.utimes(file, at, at).catch(() => undefined))
      yield* Effect.sleep(settleMs)
      return yield* isMine
    }),
    /** Lets another one begin at once. */
    leave: Effect.gen(function* () {
      if (yield* isMine) yield* Effect.promise(() => fs.rm(file, { force: true }))
    }).pipe(Effect.ignore)
  }
}
