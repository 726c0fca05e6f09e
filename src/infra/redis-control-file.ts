/**
 * The control file of a managed cache server: what was assigned to it, and the fencing number of the latest
 * reconcile that began to work on it.
 *
 * A reconcile claims the server before its first act and is checked again before each one, so a process that
 * stalled past its lease finds itself refused. Between a check and its act lie microseconds: the fence stops
 * those that stalled, it is no lock, and the lease in the store keeps two from working at once.
 */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { outside } from "#src/engine/outside.ts"
import type { Host } from "./Host.ts"
import { failed, RedisServerError } from "./redis-errors.ts"

/** A server as the reconcile that acts on it knows it. */
export interface RedisTarget {
  readonly uid: string
  readonly fence: bigint
}

const Assigned = Schema.Struct({
  fence: Schema.BigIntFromString,
  port: Schema.optionalKey(Schema.Int),
  /** File in the server's folder with its certificate and key. */
  certificate: Schema.optionalKey(Schema.String)
})
export type Assigned = typeof Assigned.Type
const Stored = Schema.fromJsonString(Assigned)

export const makeControlFiles = (host: Host["Service"], dirOf: (uid: string) => string) => {
  const fileOf = (uid: string) => path.join(dirOf(uid), "server.json")

  /** A file that cannot be understood counts as none: what was assigned is then assigned anew. */
  const read = (uid: string): Effect.Effect<Option.Option<Assigned>, RedisServerError> =>
    Effect.flatMap(
      Effect.mapError(host.readFile(fileOf(uid)), failed),
      Option.match({
        onNone: () => Effect.succeedNone,
        onSome: (text) => Effect.option(Schema.decodeEffect(Stored)(text))
      })
    )
  const write = (uid: string, assigned: Assigned) =>
    Effect.flatMap(Effect.orDie(Schema.encodeEffect(Stored)(assigned)), (text) =>
      Effect.mapError(host.writeFile(fileOf(uid), text), failed)
    )
  const fenced = (uid: string) =>
    new RedisServerError({
      reason: "Fenced",
      message: `A later reconcile works on the cache server ${uid}; this one stops`
    })

  /** Fails unless `target` is the latest reconcile that claimed the server. */
  const check = Effect.fnUntraced(function* ({ uid, fence }: RedisTarget) {
    const assigned = yield* read(uid)
    if (Option.isNone(assigned) || assigned.value.fence !== fence) return yield* fenced(uid)
    return assigned.value
  })

  return {
    read,
    check,
    claim: Effect.fnUntraced(function* ({ uid, fence }: RedisTarget) {
      const assigned = Option.getOrUndefined(yield* read(uid))
      if (assigned?.fence === fence) return
      if (assigned !== undefined && assigned.fence > fence) return yield* fenced(uid)
      yield* outside(
        "redis.claim",
        "write"
      )(
        Effect.andThen(
          Effect.mapError(host.directory(dirOf(uid)), failed),
          write(uid, { ...assigned, fence })
        )
      )
    }),
    assign: Effect.fnUntraced(function* (target: RedisTarget, values: Partial<Omit<Assigned, "fence">>) {
      yield* write(target.uid, { ...(yield* check(target)), ...values })
    })
  }
}
