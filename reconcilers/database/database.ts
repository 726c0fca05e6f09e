/**
 * A database is a Postgres server of its own (`postgres-server.ts`) with log archiving, whose data begins empty. When
 * a branch is promoted, the branch's data folder takes the place of the one that is there.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { differencesAndMaintenance } from "#reconcilers/server-faults.ts"
import { Database, type DatabaseFacts, type DatabaseStatus } from "#schemas/database.ts"
import { BackupHealth } from "#src/backups/health.ts"
import { absent, Retryable, register } from "#src/engine/Reconciler.ts"
import { type PostgresServer, PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { makeFailovers, noteOn } from "./failover.ts"
import {
  isWrongData,
  lookForDataMs,
  retryable,
  type ServerWanted,
  serverCare,
  wrongData
} from "./postgres-server.ts"
import { replicaCare } from "./replicas.ts"
import { type DatabaseResource, lineageOf } from "./standby.ts"

const subjectOf = ({ orgId, uid, fence, spec }: DatabaseResource): ServerWanted => ({
  orgId,
  uid,
  fence,
  sku: spec.sku,
  archived: true,
  followed: spec.replicas > 0
})

/**
 * The history that the database has reached. A machine that has lost its record of it does not take the database back to
 * the first one.
 */
const reachedBy = (resource: DatabaseResource, server: PostgresServer): string => {
  const lineage = lineageOf(resource)
  const { facts, status } = resource
  return facts.lineage === lineage || status?.lineage === lineage ? lineage : server.lineage
}

/**
 * What is known of the data for good. The engine stores it before the next step, and the server is started by a later
 * one: nobody can have written anything before it is stored that there is data. While folders are exchanged it is not
 * known whose data is where.
 */
const factsOf = (server: PostgresServer, lineage: string): DatabaseFacts | undefined =>
  server.initialised && !server.exchanging && server.failover === undefined
    ? {
        lineage,
        ...(server.systemIdentifier === undefined ? {} : { systemIdentifier: server.systemIdentifier })
      }
    : undefined

/** Copies of one history share its identifier: a promotion of another history changes it, a failover does not. */
const isForeign = ({ facts }: DatabaseResource, server: PostgresServer, lineage: string): boolean =>
  facts.lineage === lineage && isWrongData(facts, server)

/** What has to come into the place of the data folder first; undefined: the right one is there. */
const exchangeOf = (resource: DatabaseResource, server: PostgresServer) => {
  const { spec } = resource
  const lineage = lineageOf(resource)
  return reachedBy(resource, server) === lineage || spec.keptAs === undefined
    ? undefined
    : { from: lineage, keep: spec.keptAs, lineage }
}

export const layer = register(
  Database,
  { driftInterval: "1 minute", concurrency: 8 },
  Effect.gen(function* () {
    const servers = yield* PostgresServers
    const care = yield* serverCare
    const health = yield* BackupHealth
    const replicas = yield* replicaCare
    const failovers = yield* makeFailovers(replicas)

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const found = yield* retryable(servers.inspect(resource.uid))
        if (Option.isNone(found)) {
          return resource.deleting && resource.status !== null && (yield* replicas.remains(resource.uid))
            ? { _tag: "Present" as const, status: resource.status, ready: false, differences: [] }
            : absent
        }
        const server = found.value
        const lineage = reachedBy(resource, server)
        const last = server.failedOver
        const lastTold = resource.status?.failover
        const status: DatabaseStatus = {
          ...care.statusOf(server, resource.status?.server),
          lineage,
          // Until they are looked at again: how far they were tells what a failover may lose.
          ...(resource.status?.replicas === undefined ? {} : { replicas: resource.status.replicas }),
          // The last one is told of when the database is ready again: until then nobody has heard of it.
          ...(lastTold === undefined ? {} : { failover: lastTold }),
          ...(resource.status?.memoryKills === undefined ? {} : { memoryKills: resource.status.memoryKills })
        }
        const known = factsOf(server, lineage)
        const foreign = known !== undefined && isForeign(resource, server, lineage)
        const present = {
          _tag: "Present" as const,
          status,
          ...(known === undefined || foreign ? {} : { facts: known })
        }
        // What is to be removed needs no comparison, and not the secrets that one would take.
        if (resource.deleting) return { ...present, ready: false, differences: [] }
        if (foreign)
          return {
            ...present,
            ready: false,
            ...wrongData,
            differences: [{ field: "/data", message: wrongData.message }]
          }
        // The primary's folder is away for a moment while it is exchanged: that is no loss.
        if (!server.exchanging && (yield* failovers.isDue(resource, server)))
          return { ...present, ready: false, ...failingOver(server) }
        if (exchangeOf(resource, server) !== undefined) {
          return {
            ...present,
            ready: false,
            reason: "Promoting",
            message: "The data of a branch takes the place of what was there",
            differences: [{ field: "/lineage", message: "the data is not yet that of the promoted branch" }]
          }
        }
        const faults = yield* care.faultsOf(subjectOf(resource), server, yield* care.passwordOf(resource))
        const readiness = care.readiness(server, faults)
        const told = differencesAndMaintenance(faults)
        // It works; that it could not be restored as promised is told with that.
        const trouble = yield* retryable(health({ orgId: resource.orgId, lineage }))
        const kills = { ...status.memoryKills, 0: server.held.kills }
        const news = care.memoryNews(subjectOf(resource), server, status.memoryKills?.["0"])
        const note = news ?? Option.getOrUndefined(trouble)
        const seen = {
          ...present,
          status: { ...status, ...counted(kills) },
          ...told,
          ...readiness,
          ...(note === undefined ? {} : { note }),
          // Its own sentence says what is the matter and what happens next.
          ...(news === undefined || readiness.ready ? {} : news)
        }
        if (!readiness.ready || told.differences.length > 0) return seen
        const {
          replicas: standbys,
          kills: theirs,
          news: standbyNews,
          maintenance,
          ...rest
        } = yield* replicas.observe(resource, server)
        const { failover: _, replicas: __, memoryKills: ___, ...primary } = status
        const whole: DatabaseStatus = {
          ...primary,
          ...(standbys.length === 0 ? {} : { replicas: standbys }),
          ...counted({ ...theirs, 0: server.held.kills }),
          ...(last === undefined ? {} : { failover: { ...last, at: new Date(last.at).toISOString() } })
        }
        const worth = yield* noteOn(resource, whole, news ?? standbyNews ?? note)
        return {
          ...seen,
          status: whole,
          ...rest,
          maintenance: [...told.maintenance, ...maintenance],
          ...(worth === undefined ? {} : { note: worth })
        }
      }),

      converge: Effect.fnUntraced(function* (resource, seen) {
        const target = { uid: resource.uid, fence: resource.fence }
        // Nothing is made where the folder was: whoever brings it back finds the place free.
        if (seen._tag === "Absent") yield* failovers.refuseIfLost(resource)
        yield* retryable(servers.claim(target))
        const found = yield* retryable(servers.inspect(resource.uid))
        if (Option.isNone(found)) return
        const server = found.value
        const reached = reachedBy(resource, server)
        if (factsOf(server, reached) !== undefined && isForeign(resource, server, reached))
          return yield* new Retryable({ ...wrongData, againAfterMs: lookForDataMs })
        if (server.lineage !== reached) yield* retryable(servers.noteLineage(target, reached))
        if (!server.exchanging && (yield* failovers.isDue(resource, server)))
          return yield* failovers.failOver(resource, server)
        const exchange = exchangeOf(resource, server)
        if (exchange === undefined) {
          const busy = yield* care.step(subjectOf(resource), server, failovers.initialise(resource))
          // What is wrong with standbys is maintenance: it must not be told as a failure to mend the primary.
          const whole = seen._tag === "Present" && seen.ready && seen.differences.length === 0
          if (busy || !whole || server.process._tag !== "Running") return
          yield* replicas.step(resource, server)
          yield* care.hold(subjectOf(resource), server)
          return
        }
        // The server is down between the first of these steps and the last.
        yield* Effect.repeat(retryable(servers.exchange(target, exchange)), { until: (done) => done })
      }),

      remove: Effect.fnUntraced(function* (resource) {
        // The primary's fence is taken first, and goes last: until then a stalled run is refused.
        const target = { uid: resource.uid, fence: resource.fence }
        yield* retryable(servers.claim(target))
        yield* replicas.remove(resource)
        yield* care.remove(target)
      })
    }
  })
)

const counted = (kills: Readonly<Record<string, number>>) => {
  const some = Object.entries(kills).filter(([, count]) => count > 0)
  return some.length === 0 ? {} : { memoryKills: Object.fromEntries(some) }
}

const failingOver = ({ failover, startFailures }: PostgresServer) => ({
  reason: "FailingOver",
  message: startFailures?.message ?? "The data folder of the primary is gone",
  differences: [
    {
      field: "/data",
      message:
        failover === undefined
          ? "a standby is to take the primary's place"
          : `the data of standby ${failover.replica} is not yet in the primary's place`
    }
  ]
})
