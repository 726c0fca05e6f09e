/**
 * What is written down beside a managed server: its fence, what it was given, what it went through. Every act is preceded
 * by a check of the fence: a process that stalled past its lease finds a higher number there and is refused.
 */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { outside } from "#src/engine/outside.ts"
import type { Host, HostError } from "./Host.ts"
import type { PostgresControlError } from "./PostgresControl.ts"
import { failed, PostgresServerError } from "./postgres-error.ts"
import { Failover, FailoverPlan } from "./postgres-failover.ts"
import type { ServerFolders } from "./postgres-folders.ts"

/** A server as the reconcile that acts on it knows it. */
export interface PostgresTarget {
  readonly uid: string
  readonly fence: bigint
}

const Assigned = Schema.Struct({
  fence: Schema.BigIntFromString,
  port: Schema.optionalKey(Schema.Int),
  /** File in `conf` with certificate and key. */
  certificate: Schema.optionalKey(Schema.String),
  /** Which history the data folder belongs to. Absent: its own. */
  lineage: Schema.optionalKey(Schema.String),
  /** The servers that should have got a data folder that an exchange replaced, when that folder was lost before. */
  nothingKept: Schema.optionalKey(Schema.Array(Schema.String)),
  /** The server whose data folder was to come here and is nowhere. */
  neverCame: Schema.optionalKey(Schema.String),
  /** Starts in a row that failed for reasons that may lie in the data. */
  startFailures: Schema.optionalKey(Schema.Struct({ count: Schema.Int, message: Schema.String })),
  /** The data folder of a standby is on its way here. */
  failover: Schema.optionalKey(FailoverPlan),
  /** The last one that came. */
  failedOver: Schema.optionalKey(Failover),
  /** Of a standby: since when it does not follow its primary. */
  aloneSince: Schema.optionalKey(Schema.Int),
  /** How many failovers its data has seen. Absent: none. */
  era: Schema.optionalKey(Schema.Int),
  /** Of a standby: whoever is connected used the password of this version, or a later one. */
  credentialVersion: Schema.optionalKey(Schema.Int)
})
export type Assigned = typeof Assigned.Type
const AssignedText = Schema.fromJsonString(Assigned)

/** Where segments of the log wait to be backed up. */
export const spoolOf = (folders: ServerFolders, uid: string, now: Assigned | undefined): string =>
  folders.spoolOf(uid, now?.lineage ?? uid)

export const makeAssigned = (host: Host["Service"], folders: ServerFolders) => {
  const { dirOf, confOf } = folders
  const assignedFile = (uid: string) => path.join(dirOf(uid), "server.json")

  const assigned = Effect.fnUntraced(function* (uid: string) {
    const text = yield* Effect.mapError(host.readFile(assignedFile(uid)), failed)
    if (Option.isNone(text)) return undefined
    // A file that cannot be understood counts as none: what was assigned is then assigned anew.
    return Option.getOrUndefined(yield* Effect.option(Schema.decodeUnknownEffect(AssignedText)(text.value)))
  })
  const writeAssigned = (uid: string, value: Assigned) =>
    Effect.flatMap(Effect.orDie(Schema.encodeEffect(AssignedText)(value)), (text) =>
      Effect.mapError(host.writeFile(assignedFile(uid), text), failed)
    )
  const fenced = (uid: string) =>
    new PostgresServerError({
      reason: "Fenced",
      message: `A later reconcile works on the database server ${uid}; this one stops`
    })
  const check = Effect.fnUntraced(function* ({ uid, fence }: PostgresTarget) {
    const now = yield* assigned(uid)
    if (now === undefined || now.fence !== fence) return yield* fenced(uid)
    return now
  })
  /** One act: fenced, logged, its failures in words. */
  const act = <A>(
    name: string,
    target: PostgresTarget,
    body: (now: Assigned) => Effect.Effect<A, HostError | PostgresControlError | PostgresServerError>
  ): Effect.Effect<A, PostgresServerError> =>
    Effect.flatMap(check(target), (now) =>
      outside(
        name,
        "write"
      )(body(now)).pipe(
        Effect.mapError((error) => (error._tag === "PostgresServerError" ? error : failed(error)))
      )
    )
  const claim = Effect.fnUntraced(function* ({ uid, fence }: PostgresTarget) {
    const now = yield* assigned(uid)
    if (now?.fence === fence) return
    if (now !== undefined && now.fence > fence) return yield* fenced(uid)
    yield* outside(
      "postgres.claim",
      "write"
    )(
      Effect.gen(function* () {
        for (const dir of [dirOf(uid), confOf(uid), spoolOf(folders, uid, now)]) {
          yield* Effect.mapError(host.directory(dir), failed)
        }
        yield* writeAssigned(uid, { ...now, fence })
      })
    )
  })

  return { act, assigned, claim, writeAssigned }
}
export type PostgresActs = ReturnType<typeof makeAssigned>
