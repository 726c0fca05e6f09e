/**
 * Puts the data folder of one server in the place of another's, which keeps its host, port, certificate and
 * credentials; what was there goes to a third server. Nothing is copied: the folders are renamed.
 *
 * Each step is one rename, and where the folders are tells which step comes next, so a crash between any two loses
 * nothing: the next run looks and goes on.
 *
 *     from/data   ->  to/data.next      take in: both servers are stopped
 *     to/data     ->  keep/data         set aside
 *     to/data.next -> to/data           put in place
 *     to/server.json names the lineage  the end
 *
 * When the data folder was lost before the first of these steps, there is nothing to set aside: that is noted, and the
 * rest is the same. When the folder that should come is nowhere, that is noted as well, and the exchange fails until it
 * is called off (`src/branches/Promotions.ts`).
 *
 * A late rename of a process that lost its lease finds its source gone or its target taken, and fails.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import type { HostError } from "../host/Host.ts"
import type { Assigned, PostgresTarget } from "./assigned.ts"
import { PostgresServerError } from "./error.ts"
import type { ServerFolders } from "./folders.ts"
import type { PostgresControlError } from "./PostgresControl.ts"

export interface Exchange {
  /** The server whose data folder comes. */
  readonly from: string
  /** The server that gets the data folder that goes. */
  readonly keep: string
  /** The history that the folder belongs to. */
  readonly lineage: string
}

interface Parts {
  readonly act: <A>(
    name: string,
    target: PostgresTarget,
    body: (now: Assigned) => Effect.Effect<A, HostError | PostgresControlError | PostgresServerError>
  ) => Effect.Effect<A, PostgresServerError>
  readonly assigned: (uid: string) => Effect.Effect<Assigned | undefined, PostgresServerError>
  readonly claim: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
  readonly endOrphan: (uid: string, port: number) => Effect.Effect<void, HostError | PostgresServerError>
  readonly exists: (file: string) => Effect.Effect<boolean>
  readonly folders: ServerFolders
  readonly halt: (uid: string, pid: number) => Effect.Effect<void, PostgresServerError>
  readonly pidOf: (uid: string) => Effect.Effect<number | undefined, PostgresServerError>
  readonly writeAssigned: (uid: string, value: Assigned) => Effect.Effect<void, PostgresServerError>
}

/** Beside the data folder, until that one has gone. */
export const incoming = "data.next"

export const makeExchange = (parts: Parts) => {
  const { act, assigned, claim, endOrphan, exists, folders, halt, pidOf, writeAssigned } = parts
  const { dataOf, dirOf } = folders
  const holds = (folder: string) => exists(path.join(folder, "PG_VERSION"))
  const stopped = Effect.fnUntraced(function* (uid: string) {
    const pid = yield* pidOf(uid)
    if (pid !== undefined) yield* halt(uid, pid)
  })

  return Effect.fn("PostgresServers.exchange")(function* (target: PostgresTarget, plan: Exchange) {
    const { uid, fence } = target
    const now = yield* assigned(uid)
    if ((now?.lineage ?? uid) === plan.lineage) return true
    // Nothing has moved, and nothing will: others have been told.
    if (now?.neverCame === plan.from) {
      return yield* new PostgresServerError({
        reason: "Failed",
        message: "The data of the promoted branch is gone: it cannot take the place of what is there"
      })
    }
    const next = path.join(dirOf(uid), incoming)
    const look = Effect.all([
      holds(dataOf(uid)),
      holds(next),
      holds(dataOf(plan.from)),
      holds(dataOf(plan.keep))
    ])
    const [here, waiting, there, kept] = yield* look
    if (waiting && here) {
      // Its own runs wait for the folder and write nothing before.
      yield* claim({ uid: plan.keep, fence })
      yield* act("postgres.setAside", target, () =>
        Effect.andThen(stopped(uid), moved(dataOf(uid), dataOf(plan.keep)))
      )
      return false
    }
    if (waiting) {
      yield* act("postgres.putInPlace", target, () => moved(next, dataOf(uid)))
      return false
    }
    const lost = now?.nothingKept?.includes(plan.keep) === true
    if (here && (kept || (lost && !there))) {
      yield* act("postgres.recordLineage", target, (current) =>
        writeAssigned(uid, { ...current, lineage: plan.lineage })
      )
      return true
    }
    if (here && there) {
      yield* claim({ uid: plan.from, fence })
      yield* act("postgres.stopForExchange", target, () => Effect.andThen(stopped(plan.from), stopped(uid)))
      yield* act("postgres.takeIn", target, () => moved(dataOf(plan.from), next))
      return false
    }
    if (!here && there && !lost) {
      yield* act("postgres.noteLoss", target, (current) =>
        writeAssigned(uid, { ...current, nothingKept: [...(current.nothingKept ?? []), plan.keep] })
      )
      return false
    }
    if (!here && there) {
      yield* claim({ uid: plan.from, fence })
      yield* act("postgres.takeInAlone", target, ({ port }) =>
        Effect.gen(function* () {
          yield* stopped(plan.from)
          // What is left of the server holds its port.
          if (port !== undefined) yield* endOrphan(uid, port)
          yield* moved(dataOf(plan.from), next)
        })
      )
      return false
    }
    yield* act("postgres.noteNeverCame", target, (current) =>
      Effect.gen(function* () {
        // A late rename by another process may have come between the looks at the folders. None comes after this one:
        // what is not there cannot be renamed.
        const again = yield* look
        if (again.join() !== [here, waiting, there, kept].join()) return
        const nothingKept = [...(current.nothingKept ?? []), ...(kept || lost ? [] : [plan.keep])]
        yield* writeAssigned(uid, { ...current, neverCame: plan.from, nothingKept })
      })
    )
    return false
  })
}

/** Durable before the next step looks at it. */
export const moved = (from: string, to: string) =>
  Effect.tryPromise({
    try: async () => {
      await fs.rename(from, to)
      for (const folder of new Set([path.dirname(from), path.dirname(to)])) {
        const handle = await fs.open(folder, "r")
        try {
          await handle.sync()
        } finally {
          await handle.close()
        }
      }
    },
    catch: (cause) =>
      new PostgresServerError({
        reason: "Failed",
        message: `A data folder could not be moved: ${cause instanceof Error ? cause.message : String(cause)}`,
        cause
      })
  })
