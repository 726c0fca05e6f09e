/**
 * Managed Postgres servers on this machine, one for each database: an adapter without policy. It looks at a server
 * and takes single acts; what should be is told by the reconciler.
 *
 * Everything of a server is in `<data folder>/databases/<uid>`: `data`, `conf`, `server.json`, and the log segments that
 * wait to be backed up (`folders.ts`). Servers run detached and are found again by their pid file. Every act is
 * fenced (`assigned.ts`).
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { DatabaseSize } from "#schemas/catalog.ts"
import { AppConfig } from "#src/config.ts"
import { externalCall } from "#src/engine/external-call.ts"
import type { IssuedCertificate } from "../CertificateAuthority.ts"
import { Host } from "../host/Host.ts"
import type { HeldServer, ServerLimits } from "../host/server-limits.ts"
import { type Assigned, makeAssigned, type PostgresTarget, spoolOf } from "./assigned.ts"
import { failed, type PostgresServerError } from "./error.ts"
import { type Exchange, incoming, makeExchange } from "./exchange.ts"
import { makeFailover } from "./failover.ts"
import type { Failover, FailoverPlan } from "./failover-plan.ts"
import { serverFolders } from "./folders.ts"
import { PostgresBinaries } from "./PostgresBinaries.ts"
import type { PostgresEndpoint } from "./PostgresControl.ts"
import { makeProcesses, type PostgresProcess } from "./process.ts"
import { type PostgresSettings, renderAccess, renderConfig, renderIdentities } from "./settings.ts"
import { makeStart } from "./start.ts"
import { makeStatements } from "./statements.ts"
import { systemIdentifierIn } from "./system-identifier.ts"

export interface PostgresServer {
  readonly port: number | undefined
  readonly initialised: boolean
  /** Postgres's identifier of the data, which every copy of it shares; undefined without data. */
  readonly systemIdentifier: string | undefined
  readonly files: { readonly config: string; readonly access: string; readonly identities: string }
  /** PEM text. */
  readonly certificate: string | undefined
  /** Which history the data folder belongs to. */
  readonly lineage: string
  /** Another data folder is just taking the place of this server's. */
  readonly exchanging: boolean
  /** Who waits in vain for a data folder that was replaced. */
  readonly nothingKept: ReadonlyArray<string>
  /** The server whose data folder was to come here and is nowhere. */
  readonly neverCame: string | undefined
  readonly process: PostgresProcess
  /** How the machine holds it to its limits. */
  readonly held: HeldServer
  readonly startFailures: { readonly count: number; readonly message: string } | undefined
  readonly failover: FailoverPlan | undefined
  readonly failedOver: Failover | undefined
  readonly aloneSince: number | undefined
  /** A standby of an earlier era than its primary's has not followed it since the last failover. */
  readonly era: number
  readonly credentialVersion: number | undefined
}

/** What decides on a server's files, besides its port and its certificate. */
export interface ServerShape {
  readonly size: DatabaseSize
  /** Whether finished segments of the log are put aside for backups. */
  readonly archived: boolean
  /** For a standby: whom it follows. */
  readonly follows: { readonly uid: string; readonly slot: string } | undefined
  /** Whether standbys follow it, or would if it took the primary's place. */
  readonly replicated: boolean
}

export class PostgresServers extends Context.Service<
  PostgresServers,
  {
    /** None: there is nothing of this server. */
    readonly inspect: (
      uid: string,
      /** A server that has not answered after this is taken for one that does not answer yet. */
      patience?: Duration.Input
    ) => Effect.Effect<Option.Option<PostgresServer>, PostgresServerError>
    /** Where a server is reached by the control user; none while it has no port. */
    readonly endpoint: (uid: string) => Effect.Effect<Option.Option<PostgresEndpoint>, PostgresServerError>
    /** The files such a server should have; undefined while port or certificate are missing. */
    readonly wantedFiles: (
      uid: string,
      server: PostgresServer,
      shape: ServerShape
    ) => Effect.Effect<PostgresServer["files"] | undefined, PostgresServerError>
    /** Takes the server over from earlier reconciles. A lower fence than before is refused. */
    readonly claim: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    readonly reservePort: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    readonly writeCertificate: (
      target: PostgresTarget,
      certificate: IssuedCertificate
    ) => Effect.Effect<void, PostgresServerError>
    readonly writeFiles: (
      target: PostgresTarget,
      files: PostgresServer["files"]
    ) => Effect.Effect<void, PostgresServerError>
    /** Makes the data folder. It has its name only once it is whole. */
    readonly initialise: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    /** One step of putting another data folder in the place of this server's; true once nothing is left to do. */
    readonly exchange: (target: PostgresTarget, plan: Exchange) => Effect.Effect<boolean, PostgresServerError>
    /** Ends the server even if its data folder was taken from under it. */
    readonly endPrimary: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    /** Decides that a standby's data folder takes the place of this server's, which has ended. */
    readonly beginFailover: (
      target: PostgresTarget,
      plan: FailoverPlan
    ) => Effect.Effect<void, PostgresServerError>
    /** One step of that; true once nothing is left to do. */
    readonly failOver: (target: PostgresTarget) => Effect.Effect<boolean, PostgresServerError>
    /** Removes data folders that failovers have set aside. */
    readonly removeSetAside: (
      target: PostgresTarget,
      folders: ReadonlyArray<string>
    ) => Effect.Effect<void, PostgresServerError>
    /** Removes the data folder, and notes what the next one will belong to. */
    readonly dropData: (
      target: PostgresTarget,
      next: { readonly lineage: string; readonly era: number; readonly credentialVersion: number }
    ) => Effect.Effect<void, PostgresServerError>
    /** Notes which history the data belongs to, where the machine does not know it any more. */
    readonly noteLineage: (
      target: PostgresTarget,
      lineage: string
    ) => Effect.Effect<void, PostgresServerError>
    /** Notes since when a standby is on its own. */
    readonly noteAlone: (target: PostgresTarget, since: number) => Effect.Effect<void, PostgresServerError>
    /** Notes that a standby follows its primary, and which era that is of. */
    readonly noteTogether: (target: PostgresTarget, era: number) => Effect.Effect<void, PostgresServerError>
    /** Ends the sessions of the application on a standby, which has received the password of this version. */
    readonly disconnect: (
      target: PostgresTarget,
      credentialVersion: number
    ) => Effect.Effect<void, PostgresServerError>
    /** A slot that keeps the log from now on; `anew`: also instead of one that is there. */
    readonly makeSlot: (
      target: PostgresTarget,
      slot: string,
      anew: boolean
    ) => Effect.Effect<void, PostgresServerError>
    readonly dropSlots: (
      target: PostgresTarget,
      slots: ReadonlyArray<string>
    ) => Effect.Effect<void, PostgresServerError>
    readonly start: (target: PostgresTarget, limits: ServerLimits) => Effect.Effect<void, PostgresServerError>
    /** Holds it to its limits, whether it runs or not, without stopping it. */
    readonly setLimits: (
      target: PostgresTarget,
      limits: ServerLimits
    ) => Effect.Effect<void, PostgresServerError>
    readonly reload: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    readonly stop: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    /** The application's role with exactly this password and no power; whoever used another is disconnected. */
    readonly setRole: (
      target: PostgresTarget,
      exists: boolean,
      password: Redacted.Redacted
    ) => Effect.Effect<void, PostgresServerError>
    readonly createDatabase: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    readonly closeDatabases: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    readonly createExtension: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    /** Stops every server of this machine, whoever works on it: for an operator who takes the machine down. */
    readonly stopAll: Effect.Effect<void, PostgresServerError>
    /** Removes everything, also the port reservation. */
    readonly delete: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
  }
>()("svc/infra/PostgresServers") {
  static readonly layer = Layer.effect(
    PostgresServers,
    Effect.gen(function* () {
      const host = yield* Host
      const programs = yield* PostgresBinaries
      const { dataDir, managedHost } = yield* AppConfig
      const own = os.userInfo().username
      const systemUsers = [...new Set([own, ...(host.runAs === undefined ? [] : [host.runAs.name])])]

      const folders = serverFolders(dataDir)
      const { dirOf, dataOf, confOf } = folders
      const { act, assigned, claim, writeAssigned } = makeAssigned(host, folders)
      const readText = (file: string) =>
        Effect.map(
          Effect.mapError(host.readFile(file), failed),
          Option.getOrElse(() => "")
        )

      const { pidOf, processOf, halt, endOrphan } = makeProcesses(host, dataOf)
      const stopped = Effect.fnUntraced(function* (uid: string) {
        const pid = yield* pidOf(uid)
        if (pid !== undefined) yield* halt(uid, pid)
      })
      const endpoint = (now: Assigned) => ({ socketDir: host.socketDir, port: now.port ?? 0 })

      const exists = (file: string) =>
        Effect.promise(() =>
          fs.access(file).then(
            () => true,
            () => false
          )
        )

      /**
       * A path in the server's folder, as the server sees it, which works in its data folder. Every role may read some
       * settings that hold paths, and tenants are told nothing of this machine's folders.
       */
      const seenFromData = (uid: string, file: string) =>
        Effect.promise(async () => {
          // The data may be a link to another disk; what is not there yet will be where it belongs.
          const dir = await fs.realpath(dirOf(uid)).catch(() => dirOf(uid))
          const data = await fs.realpath(dataOf(uid)).catch(() => path.join(dir, "data"))
          return path.relative(data, path.join(dir, path.relative(dirOf(uid), file)))
        })

      return PostgresServers.of({
        ...makeStatements({ act, endpoint, writeAssigned }),
        ...makeStart({ act, endpoint, folders, host, pidOf, programs, writeAssigned }),

        exchange: makeExchange({
          act,
          assigned,
          claim,
          endOrphan,
          exists,
          folders,
          halt,
          pidOf,
          writeAssigned
        }),

        failOver: makeFailover({ act, assigned, claim, exists, folders, stopped, writeAssigned }),
        endPrimary: (target) =>
          act("postgres.endPrimary", target, ({ port }) =>
            Effect.andThen(
              stopped(target.uid),
              port === undefined ? Effect.void : endOrphan(target.uid, port)
            )
          ),
        beginFailover: (target, failover) =>
          act("postgres.beginFailover", target, (now) => writeAssigned(target.uid, { ...now, failover })),
        removeSetAside: (target, asides) =>
          act("postgres.removeSetAside", target, () =>
            Effect.forEach(asides, (folder) => host.removeAll(folder), { discard: true })
          ),
        dropData: (target, next) =>
          act("postgres.dropData", target, ({ aloneSince: _, startFailures: __, ...now }) =>
            Effect.gen(function* () {
              yield* stopped(target.uid)
              yield* host.removeAll(dataOf(target.uid))
              yield* writeAssigned(target.uid, { ...now, ...next })
            })
          ),
        noteLineage: (target, lineage) =>
          act("postgres.noteLineage", target, (now) => writeAssigned(target.uid, { ...now, lineage })),
        noteAlone: (target, aloneSince) =>
          act("postgres.noteAlone", target, (now) => writeAssigned(target.uid, { ...now, aloneSince })),
        noteTogether: (target, era) =>
          act("postgres.noteTogether", target, ({ aloneSince: _, ...now }) =>
            writeAssigned(target.uid, { ...now, era })
          ),
        inspect: Effect.fn("PostgresServers.inspect")(
          function* (uid, patience) {
            if (!(yield* exists(dirOf(uid)))) return Option.none()
            const now = yield* assigned(uid)
            const certificate =
              now?.certificate === undefined ? "" : yield* readText(path.join(confOf(uid), now.certificate))
            const process = yield* processOf(uid, now?.port, patience)
            const pid = process._tag === "Stopped" ? undefined : process.pid
            const server: PostgresServer = {
              port: now?.port,
              initialised: yield* exists(path.join(dataOf(uid), "PG_VERSION")),
              systemIdentifier: yield* systemIdentifierIn(dataOf(uid)),
              files: {
                config: yield* readText(path.join(confOf(uid), "postgresql.conf")),
                access: yield* readText(path.join(confOf(uid), "pg_hba.conf")),
                identities: yield* readText(path.join(confOf(uid), "pg_ident.conf"))
              },
              certificate: certificate === "" ? undefined : certificate,
              lineage: now?.lineage ?? uid,
              exchanging: yield* exists(path.join(dirOf(uid), incoming)),
              nothingKept: now?.nothingKept ?? [],
              neverCame: now?.neverCame,
              process,
              held: yield* Effect.mapError(host.holding.look(uid, pid), failed),
              startFailures: now?.startFailures,
              failover: now?.failover,
              failedOver: now?.failedOver,
              aloneSince: now?.aloneSince,
              era: now?.era ?? 0,
              credentialVersion: now?.credentialVersion
            }
            return Option.some(server)
          },
          externalCall("postgres.inspect", "read")
        ),

        endpoint: (uid) =>
          Effect.map(assigned(uid), (now) =>
            now?.port === undefined ? Option.none() : Option.some(endpoint(now))
          ),

        wantedFiles: Effect.fnUntraced(function* (uid, server, { size, archived, follows, replicated }) {
          const now = yield* assigned(uid)
          const primary = follows === undefined ? undefined : yield* assigned(follows.uid)
          if (now?.port === undefined || now.certificate === undefined || server.certificate === undefined) {
            return undefined
          }
          if (follows !== undefined && primary?.port === undefined) return undefined
          const certificate = yield* seenFromData(uid, path.join(confOf(uid), now.certificate))
          const settings: PostgresSettings = {
            size,
            port: now.port,
            listenOn: managedHost,
            socketDir: host.socketDir,
            dataDir: dataOf(uid),
            confDir: confOf(uid),
            archiveDir: archived ? yield* seenFromData(uid, spoolOf(folders, uid, now)) : undefined,
            follows:
              follows === undefined || primary?.port === undefined
                ? undefined
                : { port: primary.port, slot: follows.slot },
            replicated,
            certificate,
            key: certificate,
            systemUsers
          }
          return {
            config: renderConfig(settings),
            access: renderAccess(),
            identities: renderIdentities(settings)
          }
        }),

        claim,

        reservePort: (target) =>
          act("postgres.reservePort", target, (now) =>
            Effect.flatMap(host.reservePort(target.uid), (port) =>
              writeAssigned(target.uid, { ...now, port })
            )
          ),

        writeCertificate: (target, { certificatePem, privateKeyPem }) =>
          act("postgres.writeCertificate", target, (now) =>
            Effect.gen(function* () {
              // A name of its own for each: the server never sees a certificate with another one's key.
              const certificate = `server-${randomBytes(4).toString("hex")}.pem`
              const pem = `${certificatePem.trimEnd()}\n${Redacted.value(privateKeyPem)}`
              yield* host.writeFile(path.join(confOf(target.uid), certificate), pem)
              yield* writeAssigned(target.uid, { ...now, certificate })
              if (now.certificate !== undefined) {
                // The old one is what the server may still have loaded; it is not read again after a reload.
                yield* host.removeAll(path.join(confOf(target.uid), now.certificate))
              }
            })
          ),

        writeFiles: (target, files) =>
          act("postgres.writeFiles", target, (now) =>
            Effect.gen(function* () {
              const dir = confOf(target.uid)
              yield* host.directory(spoolOf(folders, target.uid, now))
              yield* host.writeFile(path.join(dir, "pg_hba.conf"), files.access)
              yield* host.writeFile(path.join(dir, "pg_ident.conf"), files.identities)
              yield* host.writeFile(path.join(dir, "postgresql.conf"), files.config)
            })
          ),

        setLimits: (target, limits) =>
          act("postgres.setLimits", target, () =>
            Effect.flatMap(pidOf(target.uid), (pid) => host.holding.mend(target.uid, pid, limits))
          ),

        stop: (target) =>
          Effect.flatMap(pidOf(target.uid), (pid) =>
            pid === undefined ? Effect.void : act("postgres.stop", target, () => halt(target.uid, pid))
          ),

        stopAll: Effect.gen(function* () {
          const uids = yield* Effect.promise(() =>
            fs.readdir(path.join(dataDir, "databases")).catch(() => [])
          )
          yield* Effect.forEach(
            uids,
            Effect.fnUntraced(function* (uid) {
              const pid = yield* pidOf(uid)
              if (pid !== undefined) yield* halt(uid, pid)
            }),
            { concurrency: 8, discard: true }
          )
        }),

        delete: (target) =>
          act("postgres.delete", target, () =>
            Effect.gen(function* () {
              yield* host.releasePorts(target.uid)
              yield* host.holding.release(target.uid)
              // The fence goes last: until then a stalled reconcile is refused.
              const parts = yield* Effect.promise(() => fs.readdir(dirOf(target.uid)).catch(() => []))
              for (const part of parts.filter((name) => name !== "server.json")) {
                yield* host.removeAll(path.join(dirOf(target.uid), part))
              }
              yield* host.removeAll(dirOf(target.uid))
            })
          )
      })
    })
  )
}
