/**
 * A branch is a Postgres server of its own (`postgres-server.ts`) whose data is filled in the background from its
 * source. It keeps no log archive. When it expires its server is removed; when it is promoted its data folder goes to
 * the database (whose reconciler moves it) and what is left of the server is removed. The record stays for a while.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { differencesAndMaintenance } from "#reconcilers/server-faults.ts"
import {
  DatabaseBranch,
  type DatabaseBranchFacts,
  type DatabaseBranchSpec,
  type DatabaseBranchStatus,
  expiryOf
} from "#schemas/database-branch.ts"
import { makeFill } from "#src/branches/fill.ts"
import { forbiddenInPreview, Sources } from "#src/branches/Sources.ts"
import {
  absent,
  type Observation,
  type Resource,
  Retryable,
  register,
  Terminal,
  Waiting
} from "#src/engine/Reconciler.ts"
import { type Hydration, Hydrations, waitsForTurn } from "#src/infra/postgres/Hydrations.ts"
import { type PostgresServer, PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import {
  isWrongData,
  lookForDataMs,
  retryable,
  type ServerWanted,
  serverCare,
  wrongData
} from "./postgres-server.ts"

type BranchResource = Resource<DatabaseBranchSpec, DatabaseBranchStatus, DatabaseBranchFacts>
type Seen = Observation<DatabaseBranchStatus, DatabaseBranchFacts>

/**
 * Tries before somebody has to ask for another. What the copy depends on may be down for a while: the engine's backoff
 * makes the last of these tries more than half an hour after the first.
 */
const triesFor = (code: string): number => {
  switch (code) {
    case "source_gone":
    case "outside_window":
      return 1
    case "source_unavailable":
    case "store_unavailable":
    case "no_space":
    case "copy_failed":
      return 10
    default:
      return 4
  }
}

const movingText = "Its data takes the place of a database's, or comes from there"
const lostData = {
  code: "data_lost",
  step: "ready",
  detail:
    "The data folder of the branch is gone; another copy would hold other data. Put the folder back and retry, or delete the branch"
}

/** The status tells it where a release ran that kept no facts. */
const wasHydrated = ({ facts, status }: BranchResource): boolean =>
  facts.hydrated === true || status?.hydrated === true

/** Most are small and done within a second, for which somebody waits. */
const lookAfter = (ageMs: number) =>
  ageMs < 3_000 ? "50 millis" : ageMs < 20_000 ? "200 millis" : "1 second"

/** Its process was killed after the data had got its name, and before what is left of the copy was removed. */
const isLeftOver = (now: Hydration | undefined): boolean => now?.state === "running" && !now.alive

const withLeftovers = (
  faults: ReturnType<typeof differencesAndMaintenance>,
  now: Hydration | undefined
): typeof faults =>
  isLeftOver(now)
    ? {
        ...faults,
        maintenance: [
          ...faults.maintenance,
          { field: "/data", message: "what is left of the copy has to be removed" }
        ]
      }
    : faults

const subjectOf = ({ orgId, uid, fence, spec }: BranchResource): ServerWanted => ({
  orgId,
  uid,
  fence,
  sku: spec.sku,
  archived: false
})

const nothing: DatabaseBranchStatus = {
  state: "queued",
  sourceDatabaseId: null,
  step: null,
  doneBytes: 0,
  totalBytes: 0,
  hydrated: false,
  failure: null,
  host: null,
  port: null,
  dbName: null,
  user: null,
  server: null,
  certificateExpiresAt: null
}

export const layer = register(
  DatabaseBranch,
  { driftInterval: "1 minute", concurrency: 8 },
  Effect.gen(function* () {
    const servers = yield* PostgresServers
    const hydrations = yield* Hydrations
    const sources = yield* Sources
    const care = yield* serverCare
    const fill = yield* makeFill

    const ended = Effect.fnUntraced(function* ({ uid, spec }: BranchResource) {
      if (spec.promotedTo !== undefined) return "promoted" as const
      const expiry = expiryOf(uid, spec)
      return expiry !== undefined && (yield* Clock.currentTimeMillis) >= expiry
        ? ("expired" as const)
        : undefined
    })

    /** Whether the data of this branch is on its way to or from the database that it is exchanged with, or lost. */
    const exchanging = Effect.fnUntraced(function* (
      resource: BranchResource,
      server: PostgresServer | undefined
    ) {
      const { spec } = resource
      const target = spec.promotedTo ?? (spec.source.kind === "replaced" ? spec.sourceDatabaseId : undefined)
      if (target === undefined) return undefined
      const other = yield* retryable(servers.inspect(target))
      // Without that database there is nothing to wait for.
      if (Option.isNone(other)) return undefined
      const there = server?.initialised === true
      if (!there && spec.promotedTo !== undefined && other.value.neverCame === resource.uid) return "lost"
      const waits =
        spec.promotedTo === undefined
          ? // Nothing is recorded of it before its data has come; afterwards it may go, by its expiry.
            !there &&
            resource.status === null &&
            !wasHydrated(resource) &&
            !other.value.nothingKept.includes(resource.uid)
          : there || (server !== undefined && other.value.exchanging)
      return waits ? new Waiting({ on: target, reason: "Promoting", message: movingText }) : undefined
    })

    /** It had its data once. Another copy would hold other data than what users have seen. */
    const isLost = (resource: BranchResource, now: Hydration | undefined) =>
      now?.state === "done" || wasHydrated(resource) || resource.status?.failure?.code === lostData.code

    /** A manifest names its source by place: it is looked up once. */
    const originOf = Effect.fnUntraced(function* ({ orgId, projectId, spec, status }: BranchResource) {
      const known = spec.sourceDatabaseId ?? status?.sourceDatabaseId
      if (known !== undefined && known !== null) return known
      const found = yield* retryable(sources.find({ orgId, projectId, ...spec }))
      return Option.match(found, { onNone: () => null, onSome: ({ uid }) => uid })
    })

    /** Nothing is left to do for it but to keep the record. */
    const over = (state: "expired" | "promoted", resource: BranchResource, left: boolean): Seen => ({
      _tag: "Present",
      status: { ...nothing, state, sourceDatabaseId: resource.status?.sourceDatabaseId ?? null },
      ready: !left,
      differences: left ? [{ field: "/server", message: "what is left of the server is to be removed" }] : []
    })

    const lost = (origin: string | null) => ({
      _tag: "Present" as const,
      status: { ...nothing, sourceDatabaseId: origin, failure: lostData },
      ready: false,
      reason: "DataLost",
      message: lostData.detail,
      differences: [{ field: "/data", message: lostData.detail }]
    })

    const hydrating = Effect.fnUntraced(function* (
      resource: BranchResource,
      now: Hydration | undefined,
      origin: string | null
    ): Effect.fn.Return<Seen> {
      const status: DatabaseBranchStatus = { ...nothing, sourceDatabaseId: origin }
      if (now?.alive === true) {
        return {
          _tag: "Present",
          status: {
            ...status,
            state: now.step === "queued" ? "queued" : "hydrating",
            step: now.step,
            doneBytes: now.doneBytes,
            totalBytes: now.totalBytes
          },
          ready: false,
          reason: now.step === "queued" ? "Queued" : "Hydrating",
          message: progressText(now),
          differences: [],
          pollAfter: lookAfter((yield* Clock.currentTimeMillis) - now.startedAt)
        }
      }
      if (isLost(resource, now)) return lost(origin)
      const failure = now?.state === "failed" ? now.failure : undefined
      if (failure === undefined) {
        return {
          _tag: "Present",
          status,
          ready: false,
          differences: [{ field: "/data", message: "the data is not there yet" }]
        }
      }
      const { code, step, detail } = failure
      const recorded = resource.status?.failure?.detail === detail && resource.status.failure.step === step
      return {
        _tag: "Present",
        status: { ...status, failure: { code, step, detail } },
        ready: false,
        reason: "HydrationFailed",
        message: `The copy failed at the step "${step}": ${detail}`,
        // It is recorded first, and then a step is taken from there.
        ...(recorded
          ? { differences: [{ field: "/data", message: detail }] }
          : { differences: [], pollAfter: "100 millis" })
      }
    })

    const begin = Effect.fnUntraced(function* (resource: BranchResource) {
      const { orgId, projectId, environment, spec, uid, fence } = resource
      const found = yield* retryable(sources.find({ orgId, projectId, ...spec }))
      if (Option.isNone(found)) {
        const { sourceDatabaseId, sourceDatabase: name, sourceEnvironment } = spec
        const message = `There is no database "${name}" in "${sourceEnvironment}" of the project`
        // One that is named may come yet. One that had an id never comes back.
        return yield* sourceDatabaseId === undefined
          ? new Waiting({
              on: { kind: "Database", projectId, environment: sourceEnvironment, name },
              reason: "SourceMissing",
              message
            })
          : new Terminal({ reason: "SourceMissing", message })
      }
      const origin = found.value
      if (forbiddenInPreview(environment, origin)) {
        return yield* new Terminal({
          reason: "PreviewDataForbidden",
          message: "The project does not allow copies of production data in previews (previewData)"
        })
      }
      if (spec.source.kind === "current") yield* sourceUp(origin.uid)
      // A restore is to replace what somebody has lost.
      const turn = { owner: orgId, first: spec.promoteWhenReady }
      yield* retryable(hydrations.begin({ uid, fence }, turn, (run) => fill(orgId, origin, spec.source, run)))
    })

    /** A copy needs the running server of the source, with what an application needs in it. */
    const sourceUp = Effect.fnUntraced(function* (on: string) {
      const process = Option.getOrUndefined(yield* retryable(servers.inspect(on)))?.process
      const up =
        process?._tag === "Running" &&
        !process.live.recovering &&
        process.live.database &&
        process.live.verifier !== null
      if (up) return
      return yield* new Waiting({
        on,
        reason: "SourceNotReady",
        message: "The database that it is a copy of is not up; the copy begins as soon as it is"
      })
    })

    return {
      observe: Effect.fnUntraced(function* (resource): Effect.fn.Return<
        Seen,
        Retryable | Terminal | Waiting
      > {
        const found = yield* retryable(servers.inspect(resource.uid))
        const server = Option.getOrUndefined(found)
        if (resource.deleting) {
          return server === undefined
            ? absent
            : { _tag: "Present", status: resource.status ?? nothing, ready: false, differences: [] }
        }
        const exchange = yield* exchanging(resource, server)
        // Whoever promoted it has to know: the promotion is called off, see `src/branches/maintenance.ts`.
        if (exchange === "lost")
          return {
            ...lost(resource.status?.sourceDatabaseId ?? null),
            differences: [],
            pollAfter: "1 second"
          }
        if (exchange !== undefined) return yield* exchange
        const end = yield* ended(resource)
        if (end !== undefined) return over(end, resource, server !== undefined)
        if (server === undefined) return absent
        const now = yield* retryable(hydrations.inspect(resource.uid))
        const origin = yield* originOf(resource)
        if (!server.initialised) return yield* hydrating(resource, now, origin)
        if (isWrongData(resource.facts, server))
          return {
            _tag: "Present",
            status: resource.status ?? { ...nothing, sourceDatabaseId: origin },
            ready: false,
            ...wrongData,
            differences: [{ field: "/data", message: wrongData.message }]
          }
        const faults = yield* care.faultsOf(subjectOf(resource), server, yield* care.passwordOf(resource))
        const readiness = care.readiness(server, faults)
        const refused = resource.spec.promotionRefused
        const news = care.memoryNews(subjectOf(resource), server, resource.status?.memoryKills)
        return {
          _tag: "Present",
          status: {
            ...nothing,
            ...care.statusOf(server, resource.status?.server ?? undefined),
            state: readiness.ready ? "ready" : "hydrating",
            sourceDatabaseId: origin,
            doneBytes: now?.doneBytes ?? 0,
            totalBytes: now?.totalBytes ?? 0,
            hydrated: true,
            ...(server.held.kills === 0 ? {} : { memoryKills: server.held.kills })
          },
          // Stored before the next step: the server is started by a later one, so nobody has written anything yet.
          facts: {
            hydrated: true,
            ...(server.systemIdentifier === undefined ? {} : { systemIdentifier: server.systemIdentifier })
          },
          ...withLeftovers(differencesAndMaintenance(faults), now),
          ...(refused === undefined ? {} : { note: { reason: "NotPromoted", message: refused.detail } }),
          ...readiness,
          ...(news === undefined ? {} : readiness.ready ? { note: news } : news)
        }
      }),

      converge: Effect.fnUntraced(function* (resource, seen) {
        const target = { uid: resource.uid, fence: resource.fence }
        if ((yield* ended(resource)) !== undefined) {
          yield* retryable(servers.claim(target))
          yield* retryable(hydrations.cancel(target))
          return yield* care.remove(target)
        }
        // Nothing is made where the folder was: whoever brings it back finds the place free.
        if (seen._tag === "Absent" && wasHydrated(resource))
          return yield* new Terminal({ reason: "DataLost", message: lostData.detail })
        yield* retryable(servers.claim(target))
        const found = yield* retryable(servers.inspect(resource.uid))
        if (Option.isNone(found)) return
        if (found.value.initialised) {
          if (isWrongData(resource.facts, found.value))
            return yield* new Retryable({ ...wrongData, againAfterMs: lookForDataMs })
          const busy = yield* care.step(subjectOf(resource), found.value, Effect.void)
          if (busy) return
          yield* care.hold(subjectOf(resource), found.value)
          if (isLeftOver(yield* retryable(hydrations.inspect(resource.uid))))
            yield* retryable(hydrations.cancel(target))
          return
        }
        if (resource.spec.source.kind === "replaced") {
          return yield* new Terminal({
            reason: "SourceMissing",
            message:
              "There is nothing to keep: the data that should be here was lost or never replaced, or its database is gone. Delete this branch"
          })
        }
        const now = yield* retryable(hydrations.inspect(resource.uid))
        if (now?.alive === true) return
        if (isLost(resource, now))
          return yield* new Terminal({ reason: "DataLost", message: lostData.detail })
        const { failure, attempt = 0 } = now ?? {}
        if (now?.state === "failed" && failure !== undefined && !failure.told) {
          yield* retryable(hydrations.told(target))
          const message = `The copy failed at the step "${failure.step}": ${failure.detail}`
          return yield* attempt >= triesFor(failure.code)
            ? new Terminal({ reason: "HydrationFailed", message })
            : new Retryable({ reason: "HydrationFailed", message })
        }
        yield* begin(resource)
      }),

      remove: Effect.fnUntraced(function* (resource) {
        const target = { uid: resource.uid, fence: resource.fence }
        const found = yield* retryable(servers.inspect(resource.uid))
        const exchange = yield* exchanging(resource, Option.getOrUndefined(found))
        // In the middle of an exchange the folder belongs to both.
        if (exchange !== undefined && exchange !== "lost") return yield* exchange
        yield* retryable(servers.claim(target))
        yield* retryable(hydrations.cancel(target))
        yield* care.remove(target)
      })
    }
  })
)

const progressText = ({ step, doneBytes, totalBytes }: Hydration): string =>
  step === "copy" && totalBytes > 0
    ? `Copying: ${Math.floor((doneBytes / totalBytes) * 100)} % of ${Math.ceil(totalBytes / 1_048_576)} MiB`
    : step === "queued"
      ? waitsForTurn
      : `The step "${step}" is under way`
