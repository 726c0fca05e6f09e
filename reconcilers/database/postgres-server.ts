/**
 * What a managed Postgres server must be, whoever it is for: the process runs with the size that was asked for, a
 * certificate that is good for another 30 days, one application role without power and with exactly the password
 * that is sealed in the store, its database, and nobody else let in. Where its data comes from is for the kind to say.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { databaseSizes } from "#schemas/catalog.ts"
import type { DatabaseSpec } from "#schemas/database.ts"
import { AppConfig } from "#src/config.ts"
import { type Difference, Retryable } from "#src/engine/Reconciler.ts"
import { CertificateAuthority, certificateNames } from "#src/infra/CertificateAuthority.ts"
import { databaseLimits, limitFaults, outOfMemory } from "#src/infra/host/server-limits.ts"
import type { PostgresTarget } from "#src/infra/postgres/assigned.ts"
import {
  type PostgresServer,
  PostgresServers,
  type ServerShape
} from "#src/infra/postgres/PostgresServers.ts"
import { scramMatches } from "#src/infra/postgres/scram.ts"
import { appDatabase, appUser, configDigest } from "#src/infra/postgres/settings.ts"
import { Secrets } from "#src/store/Secrets.ts"

/** A server as its kind wants it. */
export interface ServerWanted {
  readonly orgId: string
  readonly uid: string
  readonly fence: bigint
  readonly sku: DatabaseSpec["sku"]
  /** Whether finished segments of the log are put aside for backups. */
  readonly archived: boolean
  /** For a standby: the server that it follows, and the slot there. */
  readonly follows?: { readonly uid: string; readonly slot: string }
  /** Whether standbys follow it. */
  readonly followed?: boolean
}

/** Time left on a certificate when it is replaced. */
const renewBefore = 30 * 86_400_000

/** What is wrong, and the act that mends it. Acts are taken in the order of this list, one for each look. */
export type Repair =
  | "port"
  | "certificate"
  | "files"
  | "data"
  | "start"
  | "reload"
  | "restart"
  | "limits"
  | "role"
  | "database"
  | "close"
  | "extension"
export interface Fault extends Difference {
  readonly repair: Repair
}
/** Limits come after these and beside them: whether a server is held to them stands in nobody's way. */
const order: ReadonlyArray<Repair> = [
  "port",
  "certificate",
  "files",
  "data",
  "start",
  "restart",
  "reload",
  // The application's database is a copy of the one that has the extension.
  "extension",
  "role",
  "database",
  "close"
]

/**
 * Whether a folder holds other data than this server's: that of another server must neither be shown to its users nor
 * get its password.
 */
export const isWrongData = (
  { systemIdentifier: known }: { readonly systemIdentifier?: string },
  { initialised, systemIdentifier: found }: PostgresServer
): boolean => initialised && known !== undefined && found !== undefined && found !== known

/** Between looks for a data folder that is not where it should be. */
export const lookForDataMs = 60_000

export const wrongData = {
  reason: "WrongData",
  message:
    "The data folder holds the data of another server. It is not touched; put the folder of this one back in its place"
}

/** Built once for each kind that has such servers. */
export const serverCare = Effect.gen(function* () {
  const servers = yield* PostgresServers
  const authority = yield* CertificateAuthority
  const secrets = yield* Secrets
  const { managedHost, services } = yield* AppConfig
  /** Every name that clients call it by. */
  const names = certificateNames(managedHost, services?.name)

  const passwordOf = Effect.fnUntraced(function* ({ orgId, uid }: Pick<ServerWanted, "orgId" | "uid">) {
    const password = yield* retryable(secrets.read({ orgId, uid, field: "password" }))
    if (Option.isSome(password)) return password.value
    return yield* new Retryable({ message: "The database has no stored password; rotate it to set one" })
  })

  const certificateFault = Effect.fnUntraced(function* (server: PostgresServer) {
    const repair = "certificate" as const
    if (server.certificate === undefined) return [{ field: "/certificate", message: "there is none", repair }]
    const inspected = authority.inspect(server.certificate)
    if (Option.isNone(inspected)) return [{ field: "/certificate", message: "cannot be read", repair }]
    const { expiresAt, trusted, covers } = inspected.value
    if (!trusted) return [{ field: "/certificate", message: "was not signed by this platform", repair }]
    const missing = names.find((name) => !covers(name))
    if (missing !== undefined) return [{ field: "/certificate", message: `is not for ${missing}`, repair }]
    return expiresAt.getTime() - (yield* Clock.currentTimeMillis) < renewBefore
      ? [{ field: "/certificate", message: `expires at ${expiresAt.toISOString()}`, repair }]
      : []
  })

  /** What is wrong with what the server is made of, whatever is in its data. */
  const outerFaults = Effect.fnUntraced(function* (subject: ServerWanted, server: PostgresServer) {
    const faults: Array<Fault> = []
    if (server.port === undefined)
      faults.push({ field: "/port", message: "none is reserved", repair: "port" })
    faults.push(...(yield* certificateFault(server)))
    const { size } = shapeOf(subject)
    const wanted = yield* retryable(servers.wantedFiles(subject.uid, server, shapeOf(subject)))
    if (
      wanted === undefined ||
      Object.entries(wanted).some(([name, text]) => new Map(Object.entries(server.files)).get(name) !== text)
    ) {
      faults.push({
        field: "/configuration",
        message: "the files are not as they should be",
        repair: "files"
      })
    }
    if (!server.initialised)
      faults.push({ field: "/data", message: "there is no data folder", repair: "data" })
    const { process } = server
    if (process._tag === "Stopped")
      faults.push({ field: "/process", message: "the server does not run", repair: "start" })
    else
      for (const message of limitFaults(server.held, databaseLimits(size)))
        faults.push({ field: "/limits", message, repair: "limits" })
    if (process._tag !== "Running") return faults

    const { live } = process
    // Of others it is a sign that they are not ready to be asked.
    if (live.recovering && subject.follows === undefined) return faults
    if (wanted !== undefined && live.config !== configDigest(wanted.config)) {
      faults.push({
        field: "/sku",
        message: "the server runs with an older configuration",
        repair: "reload"
      })
    }
    const sized =
      live.sharedBuffers === size.sharedBuffers &&
      live.workMem === size.workMem &&
      live.maxConnections === size.maxConnections
    if (live.restartPending) {
      faults.push({ field: "/sku", message: "a setting waits for a restart", repair: "restart" })
    } else if (!sized && wanted !== undefined && live.config === configDigest(wanted.config)) {
      faults.push({
        field: "/sku",
        message: `memory and connections are not those of ${subject.sku}`,
        repair: "restart"
      })
    }
    return faults
  })

  const faultsOf = Effect.fnUntraced(function* (
    subject: ServerWanted,
    server: PostgresServer,
    password: Redacted.Redacted
  ) {
    const faults = yield* outerFaults(subject, server)
    const { process } = server
    if (process._tag !== "Running" || process.live.recovering) return faults
    const { live } = process
    if (live.verifier === null)
      faults.push({ field: "/role", message: "the application's role is missing", repair: "role" })
    else if (!(yield* scramMatches(live.verifier, password))) {
      faults.push({
        field: "/credentialVersion",
        message: "the password is not the current one",
        repair: "role"
      })
    } else if (!live.powerless) {
      faults.push({
        field: "/role",
        message: "the application's role has more power than it should",
        repair: "role"
      })
    }
    if (!live.database)
      faults.push({
        field: "/database",
        message: "the application's database is missing",
        repair: "database"
      })
    if (!live.closed)
      faults.push({ field: "/access", message: "a database lets everybody connect", repair: "close" })
    if (!live.extension)
      faults.push({ field: "/extension", message: "statistics are not collected", repair: "extension" })
    return faults
  })

  /** `before`: a server that is down tells no version, and the last one seen is the best there is. */
  const statusOf = (server: PostgresServer, before: string | undefined) => {
    const inspected = Option.flatMap(Option.fromUndefinedOr(server.certificate), authority.inspect)
    return {
      host: managedHost,
      port: server.port ?? 0,
      dbName: appDatabase,
      user: appUser,
      server: server.process._tag === "Running" ? server.process.live.version : (before ?? ""),
      certificateExpiresAt: Option.match(inspected, {
        onNone: () => "",
        onSome: ({ expiresAt }) => expiresAt.toISOString()
      })
    }
  }

  /** Why users cannot rely on it now. */
  const readiness = (server: PostgresServer, faults: ReadonlyArray<Fault>) => {
    const { process } = server
    if (process._tag === "Stopped")
      return { ready: false, reason: "ServerDown", message: "The server does not run" }
    if (process._tag === "Busy") {
      return {
        ready: false,
        reason: "ServerStarting",
        message: "The server starts and does not answer yet",
        pollAfter: "200 millis"
      } as const
    }
    if (process._tag === "Silent") {
      return {
        ready: false,
        reason: "NotAnswering",
        message: `The server runs and does not answer: ${process.message}`,
        pollAfter: "10 seconds"
      } as const
    }
    if (process.live.recovering) {
      return {
        ready: false,
        reason: "Recovering",
        message: "The server replays its log after a crash",
        pollAfter: "1 second"
      } as const
    }
    if (process.live.archiveFailing) {
      const segment = process.live.archiveError ?? "a segment"
      return {
        ready: faults.every(({ repair }) => repair === "limits"),
        reason: "ArchivingFailing",
        message: `Log segment ${segment} cannot be archived: is the disk full?`
      }
    }
    return { ready: faults.every(({ repair }) => ["certificate", "extension", "limits"].includes(repair)) }
  }

  /** What is told when the kernel has ended more processes of a server than was told; undefined: it has not. */
  const memoryNews = (subject: ServerWanted, { held }: PostgresServer, told = 0, which = "the server") =>
    held.kills <= told
      ? undefined
      : {
          reason: "OutOfMemory",
          message: outOfMemory(
            `The kernel ended a process of ${which}, which cut off all of its sessions`,
            databaseLimits(shapeOf(subject).size),
            "It starts again by itself. Use less memory for each statement (work_mem), fewer connections, or a larger size (sku)"
          )
        }

  const mend = Effect.fnUntraced(function* (
    subject: ServerWanted,
    server: PostgresServer,
    repair: Exclude<Repair, "data">,
    password: Effect.Effect<Redacted.Redacted, Retryable>
  ) {
    const target: PostgresTarget = { uid: subject.uid, fence: subject.fence }
    const limits = databaseLimits(shapeOf(subject).size)
    switch (repair) {
      case "port":
        return yield* servers.reservePort(target)
      case "certificate":
        return yield* servers.writeCertificate(target, yield* authority.issue({ hosts: names }))
      case "files": {
        const wanted = yield* servers.wantedFiles(target.uid, server, shapeOf(subject))
        if (wanted === undefined) return
        yield* servers.writeFiles(target, wanted)
        // New files on a running server are read at once: the certificate in them may be the reason.
        if (server.process._tag === "Running") yield* servers.reload(target)
        return
      }
      case "limits":
        return yield* servers.setLimits(target, limits)
      case "start":
        return yield* servers.start(target, limits)
      case "reload":
        return yield* servers.reload(target)
      case "restart":
        yield* servers.stop(target)
        return yield* servers.start(target, limits)
      case "role": {
        const known = server.process._tag === "Running" && server.process.live.verifier !== null
        return yield* servers.setRole(target, known, yield* password)
      }
      case "database":
        return yield* servers.createDatabase(target)
      case "close":
        return yield* servers.closeDatabases(target)
      case "extension":
        return yield* servers.createExtension(target)
    }
  })

  /** Takes the act that is due first and answers whether there was one. `data` makes the data folder. */
  const step = Effect.fnUntraced(function* (
    subject: ServerWanted,
    server: PostgresServer,
    data: Effect.Effect<void, { readonly message: string }>
  ) {
    const password = yield* passwordOf(subject)
    const faults = yield* faultsOf(subject, server, password)
    const repair = order.find((one) => faults.some((fault) => fault.repair === one))
    if (repair === undefined) return false
    yield* retryable(repair === "data" ? data : mend(subject, server, repair, Effect.succeed(password)))
    return true
  })

  /** Holds a server to its limits, if it is not. */
  const hold = Effect.fnUntraced(function* (subject: ServerWanted, server: PostgresServer) {
    const faults = yield* outerFaults(subject, server)
    if (!faults.some(({ repair }) => repair === "limits")) return false
    yield* retryable(mend(subject, server, "limits", passwordOf(subject)))
    return true
  })

  /** As `step`, for a standby: what is in its data is the primary's. */
  const outerStep = Effect.fnUntraced(function* (subject: ServerWanted, server: PostgresServer) {
    const faults = yield* outerFaults(subject, server)
    const repair = order.find((one) => faults.some((fault) => fault.repair === one))
    if (repair === undefined) return yield* hold(subject, server)
    if (repair === "data") return false
    yield* retryable(mend(subject, server, repair, passwordOf(subject)))
    return true
  })

  const remove = Effect.fnUntraced(function* (target: PostgresTarget) {
    yield* retryable(servers.claim(target))
    yield* retryable(servers.stop(target))
    yield* retryable(servers.delete(target))
  })

  return { faultsOf, hold, memoryNews, outerFaults, outerStep, passwordOf, readiness, remove, statusOf, step }
})

/** A standby with room for fewer connections than its primary could not start after the primary had shrunk. */
const mostConnections = Math.max(...Object.values(databaseSizes).map(({ maxConnections }) => maxConnections))

const shapeOf = ({ sku, archived, follows, followed }: ServerWanted): ServerShape => ({
  size:
    follows === undefined ? databaseSizes[sku] : { ...databaseSizes[sku], maxConnections: mostConnections },
  archived,
  follows,
  replicated: follows !== undefined || followed === true
})

/**
 * Messages of the adapters are made for people; what went wrong out there may go right later. What has its own reason
 * already keeps it.
 */
export const retryable = Effect.mapError((error: { readonly message: string }) =>
  error instanceof Retryable ? error : new Retryable({ message: error.message, cause: error })
)
