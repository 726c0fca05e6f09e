/**
 * Puts the data folder of a standby in the place of a primary whose own is lost or cannot be started. The primary keeps
 * its host, port, certificate and credentials; what was there is kept aside for a while.
 *
 * The standby is not promoted where it stands: its folder moves first and then replays what log it has under the
 * primary's configuration. So the new timeline is archived from its beginning, and nobody can write into a standby.
 *
 * The decision is written into the primary's `server.json` before anything is moved, and is not taken back. Each step
 * after that is one rename, and where the folders are tells which comes next, so a crash between any two loses nothing:
 *
 *     from/data      -> uid/data.standby   the standby is stopped, and marked to open when it has replayed its log
 *     uid/data       -> uid/failed-<time>  set aside, if it is there at all
 *     uid/data.standby -> uid/data         put in place
 *     uid/server.json tells of the failover, no longer of a decision
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import type { HostError } from "../host/Host.ts"
import type { Assigned, PostgresTarget } from "./assigned.ts"
import { PostgresServerError } from "./error.ts"
import { moved } from "./exchange.ts"
import type { ServerFolders } from "./folders.ts"
import type { PostgresControlError } from "./PostgresControl.ts"

interface Parts {
  readonly act: <A>(
    name: string,
    target: PostgresTarget,
    body: (now: Assigned) => Effect.Effect<A, HostError | PostgresControlError | PostgresServerError>
  ) => Effect.Effect<A, PostgresServerError>
  readonly assigned: (uid: string) => Effect.Effect<Assigned | undefined, PostgresServerError>
  readonly claim: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
  readonly exists: (file: string) => Effect.Effect<boolean>
  readonly folders: ServerFolders
  readonly stopped: (uid: string) => Effect.Effect<void, PostgresServerError>
  readonly writeAssigned: (uid: string, value: Assigned) => Effect.Effect<void, PostgresServerError>
}

/** Beside the data folder, until that one has gone. */
const incoming = "data.standby"
const asidePattern = /^failed-(\d+)$/

/** Data folders that failovers of this server have set aside, newest first. */
export const setAside = (dir: string) =>
  Effect.promise(async () =>
    (await fs.readdir(dir).catch(() => []))
      .flatMap((name) => {
        const at = asidePattern.exec(name)?.[1]
        return at === undefined ? [] : [{ folder: path.join(dir, name), at: Number(at) }]
      })
      .sort((a, b) => b.at - a.at)
  )

export const makeFailover = (parts: Parts) => {
  const { act, assigned, claim, exists, folders, stopped, writeAssigned } = parts
  const { dataOf, dirOf } = folders
  const holds = (folder: string) => exists(path.join(folder, "PG_VERSION"))

  /** One step of what was decided; true once nothing is left to do. */
  return Effect.fn("PostgresServers.failOver")(function* (target: PostgresTarget) {
    const { uid, fence } = target
    const plan = (yield* assigned(uid))?.failover
    if (plan === undefined) return true
    const next = path.join(dirOf(uid), incoming)
    const [waiting, here, there] = yield* Effect.all([
      holds(next),
      exists(dataOf(uid)),
      holds(dataOf(plan.from))
    ])
    if (!waiting && there) {
      yield* claim({ uid: plan.from, fence })
      yield* act("postgres.takeStandby", target, () =>
        Effect.andThen(
          stopped(plan.from),
          Effect.andThen(opensAlone(dataOf(plan.from)), moved(dataOf(plan.from), next))
        )
      )
      return false
    }
    if (waiting && here) {
      yield* act("postgres.setFailedAside", target, () =>
        moved(dataOf(uid), path.join(dirOf(uid), `failed-${plan.at}`))
      )
      return false
    }
    if (waiting) {
      yield* act("postgres.putStandbyInPlace", target, () => moved(next, dataOf(uid)))
      return false
    }
    if (here) {
      const { at, replica, lagBytes, lineage, era } = plan
      yield* act("postgres.endFailover", target, ({ failover: _, startFailures: __, ...now }) =>
        writeAssigned(uid, {
          ...now,
          ...(lineage === uid ? {} : { lineage }),
          failedOver: { at, replica, lagBytes },
          era
        })
      )
      return true
    }
    return yield* new PostgresServerError({
      reason: "Failed",
      message: "The data folder of the standby that should take over is not there any more"
    })
  })
}

/**
 * It replays what log it has and then opens, on a timeline of its own, instead of waiting for more. And it archives
 * again what a standby leaves to its primary: that one may have ended before it came to its last segments.
 */
const opensAlone = (data: string) =>
  Effect.tryPromise({
    try: async () => {
      const states = path.join(data, "pg_wal", "archive_status")
      for (const name of await fs.readdir(states)) {
        const [, segment] = /^([0-9A-F]{24})\.done$/.exec(name) ?? []
        if (segment === undefined) continue
        await fs.rename(path.join(states, name), path.join(states, `${segment}.ready`))
      }
      await fs
        .rename(path.join(data, "standby.signal"), path.join(data, "recovery.signal"))
        .catch((error: NodeJS.ErrnoException) => {
          // An interrupted step has done it.
          if (error.code !== "ENOENT") throw error
        })
    },
    catch: (cause) =>
      new PostgresServerError({
        reason: "Failed",
        message: "The data folder of a standby could not be marked to open",
        cause
      })
  })
