/** What is written down beside a managed Postgres server: its fence, what it was given, what it went through. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { externalCall } from "#src/engine/external-call.ts"
import { type FencedTarget, makeFenceFile } from "../host/fence-file.ts"
import type { Host, HostError } from "../host/Host.ts"
import { failed, PostgresServerError } from "./error.ts"
import { Failover, FailoverPlan } from "./failover-plan.ts"
import type { ServerFolders } from "./folders.ts"
import type { PostgresControlError } from "./PostgresControl.ts"

/** A server as the reconcile that acts on it knows it. */
export type PostgresTarget = FencedTarget

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

/** Where segments of the log wait to be backed up. */
export const spoolOf = (folders: ServerFolders, uid: string, now: Assigned | undefined): string =>
  folders.spoolOf(uid, now?.lineage ?? uid)

export const makeAssigned = (host: Host["Service"], folders: ServerFolders) => {
  const { dirOf, confOf } = folders
  const {
    read: assigned,
    write: writeAssigned,
    check,
    claim
  } = makeFenceFile<Assigned, PostgresServerError>({
    host,
    fileOf: (uid) => path.join(dirOf(uid), "server.json"),
    content: Assigned,
    failed,
    refused: (uid) =>
      new PostgresServerError({
        reason: "Fenced",
        message: `A later reconcile works on the database server ${uid}; this one stops`
      }),
    claimName: "postgres.claim",
    foldersOf: (uid, now) => [dirOf(uid), confOf(uid), spoolOf(folders, uid, now)],
    first: (fence) => ({ fence })
  })

  /** One act: fenced, logged, its failures in words. */
  const act = <A>(
    name: string,
    target: PostgresTarget,
    body: (now: Assigned) => Effect.Effect<A, HostError | PostgresControlError | PostgresServerError>
  ): Effect.Effect<A, PostgresServerError> =>
    Effect.flatMap(check(target), (now) =>
      externalCall(
        name,
        "write"
      )(body(now)).pipe(
        Effect.mapError((error) => (error._tag === "PostgresServerError" ? error : failed(error)))
      )
    )

  return { act, assigned, claim, writeAssigned }
}
export type PostgresActs = ReturnType<typeof makeAssigned>
