/**
 * A cache is a server of its own that accepts TLS connections only. What this keeps true: the process runs with
 * the memory, eviction policy and persistence that were asked for, a certificate that is good for another 30
 * days, and one application user with exactly the password that is sealed in the store; and its files say the
 * same, so that a server that comes back by itself comes back right.
 *
 * Everything but the loss of the process is changed on the running server: nothing restarts, no connection and
 * no data is lost. That includes turning persistence on, which a restart could only do by losing what is in
 * memory; the cache is ready again when the append-only file holds all of it.
 */
import { createHash } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { differencesAndMaintenance } from "#reconcilers/server-faults.ts"
import { Cache, type CacheFacts, type CacheSpec, type CacheStatus } from "#schemas/cache.ts"
import { cacheSizes } from "#schemas/catalog.ts"
import { AppConfig } from "#src/config.ts"
import { absent, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"
import {
  CertificateAuthority,
  certificateNames,
  type InspectedCertificate
} from "#src/infra/CertificateAuthority.ts"
import {
  type RedisServer,
  RedisServers,
  type RedisSettings,
  type RedisTarget
} from "#src/infra/redis/RedisServers.ts"
import { Secrets } from "#src/store/Secrets.ts"
import {
  certificateFaults,
  fileFaults,
  limitsOf,
  memoryNews,
  processFaults,
  readiness,
  remedyOf
} from "./faults.ts"
import { factsOf, isLost, lookForDataMs, lostData, startedEmpty } from "./loss.ts"

type CacheResource = Resource<CacheSpec, CacheStatus, CacheFacts>

export const layer = register(
  Cache,
  { driftInterval: "1 minute", concurrency: 16 },
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const authority = yield* CertificateAuthority
    const secrets = yield* Secrets
    const { managedHost, services } = yield* AppConfig
    const names = certificateNames(managedHost, services?.name)

    const settingsOf = Effect.fnUntraced(function* ({ orgId, uid, spec }: CacheResource) {
      const password = yield* retryable(secrets.read({ orgId, uid, field: "password" }))
      if (Option.isNone(password))
        return yield* new Retryable({ message: "The cache has no stored password; rotate it to set one" })
      const settings: RedisSettings = {
        ...cacheSizes[spec.sku],
        evictionPolicy: spec.evictionPolicy,
        appendOnly: spec.persistence === "aof",
        passwordDigest: createHash("sha256").update(Redacted.value(password.value)).digest("hex")
      }
      return settings
    })

    const certificateOf = (server: RedisServer) =>
      Option.getOrUndefined(Option.flatMap(Option.fromUndefinedOr(server.certificate), authority.inspect))
    const faultsOf = (certificate: InspectedCertificate | undefined) =>
      Effect.map(Clock.currentTimeMillis, (now) => certificateFaults(certificate, names, now))

    const statusOf = (
      { spec, status }: CacheResource,
      server: RedisServer,
      certificate: InspectedCertificate | undefined,
      now: number
    ): CacheStatus => {
      const live = server.process._tag === "Running" ? server.process.live : undefined
      return {
        host: managedHost,
        port: server.port ?? 0,
        memoryMb:
          live === undefined
            ? cacheSizes[spec.sku].memoryMb
            : Math.round(Number(live.settings.get("maxmemory")) / 1024 / 1024),
        // A server that is down tells no version: the last one seen is the best there is.
        server: live?.version ?? status?.server ?? "",
        certificateExpiresAt: certificate?.expiresAt.toISOString() ?? "",
        ...(isUnanswering(server) ? unanswered(status, now) : {}),
        ...(server.held.kills === 0 ? {} : { memoryKills: server.held.kills })
      }
    }

    /** Looks again after each act that decides what the next ones are. */
    const converge = Effect.fnUntraced(function* (
      target: RedisTarget,
      settings: RedisSettings,
      unansweredMs: number
    ) {
      const look = Effect.flatMap(
        servers.inspect(target.uid),
        Option.match({
          onNone: () => Effect.fail(new Retryable({ message: "The server was removed while it was made" })),
          onSome: (server) => Effect.succeed(server)
        })
      )
      yield* servers.claim(target)
      let server = yield* look
      const remedy = remedyOf(server, unansweredMs)
      if (remedy === "end script")
        yield* servers.killScript(target).pipe(
          Effect.catchIf(
            ({ reason }) => reason !== "Fenced",
            () => servers.shutDown(target)
          )
        )
      if (remedy === "restart") yield* servers.stop(target)
      if (remedy !== undefined) server = yield* look
      if (server.port === undefined) {
        // A process that has lost its folder writes to files that nobody will find.
        if (server.config === undefined && server.process._tag === "Running") yield* servers.stop(target)
        yield* servers.reservePort(target)
        server = yield* look
      }
      if ((yield* faultsOf(certificateOf(server))).length > 0) {
        yield* servers.writeCertificate(target, yield* authority.issue({ hosts: names }))
        server = yield* look
      }
      if (fileFaults(server, settings).length > 0) yield* servers.writeConfig(target, settings)
      const { process } = server
      if (process._tag === "Stopped") return yield* servers.start(target, limitsOf(settings))
      // It is right on disk, and waited for.
      if (process._tag === "Uncontrolled") return
      const repairs = new Set(processFaults(server, settings, unansweredMs).map((fault) => fault.repair))
      if (repairs.has("users")) yield* servers.setUsers(target, settings)
      if (repairs.has("settings")) yield* servers.setConfig(target, settings)
      if (repairs.has("rebuild")) yield* servers.rebuildAppendOnlyFile(target)
      if (repairs.has("discard")) yield* servers.discardAppendOnlyFile(target)
      // Last: memory that is given back makes room for a lower limit, and a machine that refuses keeps nothing else back.
      if (repairs.has("limits")) yield* servers.setLimits(target, limitsOf(settings))
    })

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const found = yield* retryable(servers.inspect(resource.uid))
        if (Option.isNone(found)) return absent
        const server = found.value
        const certificate = certificateOf(server)
        const now = yield* Clock.currentTimeMillis
        const status = statusOf(resource, server, certificate, now)
        // What is to be removed needs no comparison, and not the secrets that one would take.
        if (resource.deleting) return { _tag: "Present" as const, status, ready: false, differences: [] }
        if (isLost(resource, server))
          return {
            _tag: "Present" as const,
            status,
            ready: false,
            ...lostData,
            differences: [{ field: "/data", message: lostData.message }]
          }
        const settings = yield* settingsOf(resource)
        const faults = [
          ...(yield* faultsOf(certificate)),
          ...fileFaults(server, settings),
          ...processFaults(server, settings, unansweredFor(status, now))
        ]
        const ready = readiness(server, settings, faults)
        const news = memoryNews(server, settings, resource.status?.memoryKills)
        return {
          _tag: "Present" as const,
          status,
          ...differencesAndMaintenance(faults),
          ...ready,
          ...(news === undefined ? {} : ready.ready ? { note: news } : news),
          facts: factsOf(resource, server, ready.ready),
          ...startedEmpty(resource, server)
        }
      }),

      converge: Effect.fnUntraced(function* (resource, observation) {
        // Before anything is made where the folder was: whoever brings it back finds the place free.
        if (isLost(resource, Option.getOrUndefined(yield* retryable(servers.inspect(resource.uid)))))
          return yield* new Retryable({ ...lostData, againAfterMs: lookForDataMs })
        const settings = yield* settingsOf(resource)
        yield* retryable(servers.requireProgram)
        const target = { uid: resource.uid, fence: resource.fence }
        const status = observation._tag === "Present" ? observation.status : undefined
        const unansweredMs = unansweredFor(status, yield* Clock.currentTimeMillis)
        yield* retryable(converge(target, settings, unansweredMs))
      }),

      remove: Effect.fnUntraced(function* (resource) {
        const target = { uid: resource.uid, fence: resource.fence }
        yield* retryable(servers.claim(target))
        yield* retryable(servers.stop(target))
        yield* retryable(servers.releasePort(target))
        yield* retryable(servers.delete(target))
      })
    }
  })
)

/** Looks at a server that does not answer follow each other sooner, also while it is paused. */
const seenAgainMs = 90_000

const isUnanswering = ({ process }: RedisServer): boolean =>
  process._tag === "Uncontrolled" && (process.state === "busy" || process.state === "silent")

/** Only looks that follow each other tell how long it was: what came while nobody looked is not known. */
const unanswered = (status: CacheStatus | null, now: number) => {
  const seen = new Date(now).toISOString()
  const goesOn =
    status?.unansweredSeenAt !== undefined && now - Date.parse(status.unansweredSeenAt) < seenAgainMs
  return { unansweredSince: (goesOn ? status.unansweredSince : undefined) ?? seen, unansweredSeenAt: seen }
}

const unansweredFor = (status: CacheStatus | undefined, now: number): number =>
  status?.unansweredSince === undefined ? 0 : now - Date.parse(status.unansweredSince)

/** Messages of the adapters are made for people; what went wrong out there may go right later. */
const retryable = Effect.mapError(
  (error: { readonly message: string; readonly reason?: string }) =>
    new Retryable({
      message: error.message,
      cause: error,
      ...(error.reason === "HostDependencyMissing" || error.reason === "NotAnswering"
        ? { reason: error.reason }
        : {})
    })
)
