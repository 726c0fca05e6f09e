/**
 * A database is a Postgres server of its own (`postgres-server.ts`) with log archiving, whose data begins empty. When
 * a branch is promoted, the branch's data folder takes the place of the one that is there.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Database, type DatabaseSpec, type DatabaseStatus } from "#schemas/database.ts"
import { BackupHealth } from "#src/backups/health.ts"
import { absent, type Difference, type Resource, register } from "#src/engine/Reconciler.ts"
import { type PostgresServer, PostgresServers } from "#src/infra/PostgresServers.ts"
import { retryable, type ServerWanted, serverCare } from "./postgres-server.ts"

type DatabaseResource = Resource<DatabaseSpec, DatabaseStatus>

const subjectOf = ({ orgId, uid, fence, spec }: DatabaseResource): ServerWanted => ({
  orgId,
  uid,
  fence,
  sku: spec.sku,
  archived: true
})

/** What has to come into the place of the data folder first; undefined: the right one is there. */
const exchangeOf = ({ uid, spec }: DatabaseResource, server: PostgresServer) => {
  const lineage = spec.lineage ?? uid
  return server.lineage === lineage || spec.keptAs === undefined
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

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const found = yield* retryable(servers.inspect(resource.uid))
        if (Option.isNone(found)) return absent
        const server = found.value
        const status: DatabaseStatus = {
          ...care.statusOf(server, resource.status?.server),
          lineage: server.lineage
        }
        const present = { _tag: "Present" as const, status }
        // What is to be removed needs no comparison, and not the secrets that one would take.
        if (resource.deleting) return { ...present, ready: false, differences: [] }
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
        // It works; that it could not be restored as promised is told with that.
        const trouble = yield* retryable(health({ orgId: resource.orgId, lineage: server.lineage }))
        return {
          ...present,
          differences: faults.map(({ field, message }): Difference => ({ field, message })),
          ...readiness,
          ...(Option.isSome(trouble) ? { remark: trouble.value } : {})
        }
      }),

      converge: Effect.fnUntraced(function* (resource) {
        const target = { uid: resource.uid, fence: resource.fence }
        yield* retryable(servers.claim(target))
        const found = yield* retryable(servers.inspect(resource.uid))
        if (Option.isNone(found)) return
        const exchange = exchangeOf(resource, found.value)
        if (exchange === undefined)
          return yield* care.step(subjectOf(resource), found.value, servers.initialise(target))
        // The server is down between the first of these steps and the last.
        yield* Effect.repeat(retryable(servers.exchange(target, exchange)), { until: (done) => done })
      }),

      remove: (resource) => care.remove({ uid: resource.uid, fence: resource.fence })
    }
  })
)
