/**
 * What happens to a database whose data is lost, or whose server cannot be started again and again: the standby that
 * has most of the log gives its data folder (`failover.ts`). A primary that restarts, or recovers from a
 * crash, is waited for; and no new data is made while a standby holds some.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { DatabaseReplica, DatabaseStatus } from "#schemas/database.ts"
import { Retryable } from "#src/engine/Reconciler.ts"
import type { PostgresTarget } from "#src/infra/postgres/assigned.ts"
import { type PostgresServer, PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { replicaNumbers, standbyKey } from "#src/infra/postgres/standby.ts"
import { isWrongData, lookForDataMs, retryable, serverCare } from "./postgres-server.ts"
import type { replicaCare } from "./replicas.ts"
import { type DatabaseResource, damagedAfter, lineageOf, ReplicaOptions, standbyOf } from "./standby.ts"

/** How long a standby may take to write down what it has received of a primary that ended. */
const drainSeconds = 5
/** Acts that a standby may need before it can be asked. */
const mostActs = 10

export const makeFailovers = Effect.fnUntraced(function* (replicas: Effect.Success<typeof replicaCare>) {
  const servers = yield* PostgresServers
  const care = yield* serverCare

  /** Standbys with data of the right history. */
  const holders = Effect.fnUntraced(function* (resource: DatabaseResource) {
    const found = yield* Effect.forEach(
      replicaNumbers,
      (number) =>
        Effect.map(replicas.inspect(resource.uid, number), (server) => ({
          number,
          server: Option.getOrUndefined(server)
        })),
      { concurrency: replicaNumbers.length }
    )
    return found.filter(
      ({ server }) =>
        server?.initialised &&
        server.lineage === lineageOf(resource) &&
        !(resource.facts.lineage === lineageOf(resource) && isWrongData(resource.facts, server))
    )
  })
  /**
   * One that has not followed since the last failover would begin a timeline whose name is taken: the segments of the
   * two would be taken for each other in the archive.
   */
  const usable = (resource: DatabaseResource, primary: PostgresServer) =>
    Effect.map(holders(resource), (some) =>
      some.filter(
        ({ server }) =>
          server !== undefined &&
          server.era >= primary.era &&
          (server.startFailures?.count ?? 0) < damagedAfter
      )
    )

  /** Whether a standby is to take the place of this server, or is just taking it. */
  const isDue = Effect.fnUntraced(function* (resource: DatabaseResource, server: PostgresServer) {
    if (server.failover !== undefined) return true
    const damaged = server.process._tag === "Stopped" && (server.startFailures?.count ?? 0) >= damagedAfter
    if (server.initialised && !damaged) return false
    return (yield* usable(resource, server)).length > 0
  })

  /** Brings standbys up that are down: only those that run can tell how much of the log they have. */
  const roused = Effect.fnUntraced(function* (resource: DatabaseResource, primary: PostgresServer) {
    for (const { number } of yield* usable(resource, primary)) {
      const subject = standbyOf(resource, number)
      yield* retryable(servers.claim({ uid: subject.uid, fence: resource.fence }))
      for (let acts = 0; acts < mostActs; acts++) {
        const server = yield* replicas.inspect(resource.uid, number)
        if (Option.isNone(server)) break
        // A start that fails is counted, and this one is passed over at last.
        const more = yield* Effect.catch(care.outerStep(subject, server.value), (error) =>
          Effect.as(Effect.logWarning(`standby ${number} cannot take over yet: ${error.message}`), false)
        )
        if (!more) break
      }
    }
  })

  /** The standby with most of the log, once it receives no more of it. */
  const chosen = Effect.fnUntraced(function* (resource: DatabaseResource, primary: PostgresServer) {
    const positions = yield* Effect.forEach(
      yield* usable(resource, primary),
      Effect.fnUntraced(function* ({ number, server }) {
        const ask = replicas.positionOf(standbyKey(resource.uid, number))
        yield* ask.pipe(
          Effect.repeat({
            until: (now) => Option.isNone(now) || !now.value.receiving,
            schedule: Schedule.spaced("100 millis")
          }),
          Effect.timeoutOption(`${drainSeconds} seconds`)
        )
        return Option.map(yield* ask, ({ received }) => ({ number, received, era: server?.era ?? 0 }))
      }),
      { concurrency: replicaNumbers.length }
    )
    return positions.flatMap(Option.toArray).sort((a, b) => b.received - a.received)[0]
  })

  const failOver = Effect.fnUntraced(function* (resource: DatabaseResource, server: PostgresServer) {
    const target: PostgresTarget = { uid: resource.uid, fence: resource.fence }
    if (server.failover === undefined) {
      // Standbys are told where their primary will be.
      if (server.port === undefined) yield* retryable(servers.reservePort(target))
      yield* roused(resource, server)
      yield* retryable(servers.endPrimary(target))
      const best = yield* chosen(resource, server)
      if (best === undefined) {
        return yield* new Retryable({
          reason: "FailingOver",
          message: "The primary is lost, and no standby can be asked how much of the log it has"
        })
      }
      const last = resource.status?.replicas?.find(({ number }) => number === best.number)
      yield* retryable(
        servers.beginFailover(target, {
          at: yield* Clock.currentTimeMillis,
          replica: best.number,
          lagBytes: last?.lagBytes ?? null,
          from: standbyKey(resource.uid, best.number),
          lineage: lineageOf(resource),
          era: Math.max(server.era, best.era) + 1
        })
      )
    }
    // The server is down between the first of these steps and the last.
    yield* Effect.repeat(retryable(servers.failOver(target)), { until: (done) => done })
  })

  const lost = () =>
    new Retryable({
      reason: "DataLost",
      // The folder may come back at any time.
      againAfterMs: lookForDataMs,
      message:
        "The data folder is gone, and no standby has the data. Put it back, or svc db restore brings back what was " +
        "backed up; to begin with an empty database, delete this one and make another"
    })

  /** Fails when there was data of the history that is wanted, and nothing of it is left. */
  const refuseIfLost = Effect.fnUntraced(function* (resource: DatabaseResource) {
    if (resource.facts.lineage === lineageOf(resource) && (yield* holders(resource)).length === 0)
      return yield* lost()
  })

  /** New, empty data: for a database that never had any, and never in the place of data that was lost. */
  const initialise = Effect.fnUntraced(function* (resource: DatabaseResource) {
    const some = yield* holders(resource)
    if (some.length === 0) {
      // The status tells it where a release ran that kept no facts.
      const hadData = resource.facts.lineage !== undefined || (resource.status?.server ?? "") !== ""
      if (hadData) return yield* lost()
      return yield* retryable(servers.initialise({ uid: resource.uid, fence: resource.fence }))
    }
    const why =
      some.flatMap(({ server }) => server?.startFailures?.message ?? [])[0] ??
      "the one that is left has not followed since the last failover"
    return yield* new Retryable({
      reason: "FailingOver",
      message: `The data folder is gone, and no standby can take its place: ${why}`
    })
  })

  return { failOver, initialise, isDue, refuseIfLost }
})

/** What is told of standbys while the database is ready. */
export const noteOn = Effect.fnUntraced(function* (
  { status }: DatabaseResource,
  now: Pick<DatabaseStatus, "failover" | "replicas">,
  /** What else is worth telling. */
  other: { readonly reason: string; readonly message: string } | undefined
) {
  const { lagBytes: tooMuch } = yield* ReplicaOptions
  const { failover, replicas = [] } = now
  if (failover !== undefined && status?.failover?.at !== failover.at) {
    const lag =
      failover.lagBytes === null
        ? "how far it was behind is not known"
        : `it was at most ${Math.max(1, failover.lagBytes / 2 ** 20)} MiB of the log behind when both were last seen`
    return {
      reason: "FailedOver",
      message: `Standby ${failover.replica} has taken the primary's place at ${failover.at}; ${lag}, and what it had not received is lost`
    }
  }
  if (other !== undefined) return other
  const told = (reason: string, some: ReadonlyArray<DatabaseReplica>, what: string) =>
    some.length === 0
      ? []
      : [
          {
            reason,
            message: some
              .map(
                ({ number, problem }) => `Standby ${number} ${what}${problem === null ? "" : `. ${problem}`}`
              )
              .join("; ")
          }
        ]
  return [
    ...told(
      "ReplicaDown",
      replicas.filter(({ state }) => state === "down"),
      "does not follow"
    ),
    ...told(
      "ReplicaCopying",
      replicas.filter(({ state }) => state === "copying"),
      "is being copied"
    ),
    ...told(
      "ReplicaLagging",
      replicas.filter(({ lagBytes }) => (lagBytes ?? 0) > tooMuch),
      "is far behind"
    )
  ][0]
})
