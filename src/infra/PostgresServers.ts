/**
 * Managed Postgres servers on this machine, one for each database: an adapter without policy. It looks at a server
 * and takes single acts; what should be is told by the reconciler.
 *
 * Everything of a server is in `<data folder>/databases/<uid>`: `data`, `conf`, `server.json`, and the log segments that
 * wait to be backed up (`postgres-folders.ts`). Servers run detached and are found again by their pid file. Every act is preceded by a check of the fence in `server.json`: a
 * process that stalled past its lease finds a higher number there and is refused.
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
import * as Schema from "effect/Schema"
import type { DatabaseSize } from "#schemas/catalog.ts"
import { AppConfig } from "#src/config.ts"
import { outside } from "#src/engine/outside.ts"
import type { IssuedCertificate } from "./CertificateAuthority.ts"
import { Host, type HostError } from "./Host.ts"
import {
  askServer,
  isStarting,
  type PostgresControlError,
  type PostgresEndpoint,
  tellServer
} from "./PostgresControl.ts"
import { PostgresBinaries } from "./postgres-binaries.ts"
import { failed, PostgresServerError } from "./postgres-error.ts"
import { type Exchange, incoming, makeExchange } from "./postgres-exchange.ts"
import { Failover, FailoverPlan, makeFailover } from "./postgres-failover.ts"
import { serverFolders } from "./postgres-folders.ts"
import { everyMoment, makeProcesses, type PostgresProcess } from "./postgres-process.ts"
import {
  appDatabase,
  appUser,
  controlDatabase,
  extensionSchema,
  initdbArguments,
  type PostgresSettings,
  renderAccess,
  renderConfig,
  renderIdentities
} from "./postgres-settings.ts"
import { scramVerifier } from "./scram.ts"
import { logSince, logSize, postgresLog } from "./server-logs.ts"

/** A server as the reconcile that acts on it knows it. */
export interface PostgresTarget {
  readonly uid: string
  readonly fence: bigint
}

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
const AssignedText = Schema.fromJsonString(Assigned)

export interface PostgresServer {
  readonly port: number | undefined
  readonly initialised: boolean
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

const startSeconds = 60
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
    readonly start: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
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
      const spoolOf = (uid: string, now: Assigned | undefined) => folders.spoolOf(uid, now?.lineage ?? uid)
      const assignedFile = (uid: string) => path.join(dirOf(uid), "server.json")
      const read = (file: string) => Effect.mapError(host.readFile(file), failed)
      const readText = (file: string) =>
        Effect.map(
          read(file),
          Option.getOrElse(() => "")
        )

      const assigned = Effect.fnUntraced(function* (uid: string) {
        const text = yield* read(assignedFile(uid))
        if (Option.isNone(text)) return undefined
        // A file that cannot be understood counts as none: what was assigned is then assigned anew.
        return Option.getOrUndefined(
          yield* Effect.option(Schema.decodeUnknownEffect(AssignedText)(text.value))
        )
      })
      const writeAssigned = (uid: string, value: Assigned) =>
        Effect.flatMap(Effect.orDie(Schema.encodeEffect(AssignedText)(value)), (text) =>
          Effect.mapError(host.writeFile(assignedFile(uid), text), failed)
        )
      const fenced = (uid: string) =>
        new PostgresServerError({
          reason: "Fenced",
          message: `A later reconcile works on the database server ${uid}; this one stops`
        })
      const check = Effect.fnUntraced(function* ({ uid, fence }: PostgresTarget) {
        const now = yield* assigned(uid)
        if (now === undefined || now.fence !== fence) return yield* fenced(uid)
        return now
      })
      /** One act: fenced, logged, its failures in words. */
      const act = <A>(
        name: string,
        target: PostgresTarget,
        body: (now: Assigned) => Effect.Effect<A, HostError | PostgresControlError | PostgresServerError>
      ): Effect.Effect<A, PostgresServerError> =>
        Effect.flatMap(check(target), (now) =>
          outside(
            name,
            "write"
          )(body(now)).pipe(
            Effect.mapError((error) => (error._tag === "PostgresServerError" ? error : failed(error)))
          )
        )

      const { pidOf, processOf, halt, endOrphan } = makeProcesses(host, dataOf)
      const stopped = Effect.fnUntraced(function* (uid: string) {
        const pid = yield* pidOf(uid)
        if (pid !== undefined) yield* halt(uid, pid)
      })
      const endpoint = (now: Assigned) => ({ socketDir: host.socketDir, port: now.port ?? 0 })

      const tell = (name: string, target: PostgresTarget, text: string) =>
        act(name, target, (now) => tellServer(endpoint(now), text))

      const exists = (file: string) =>
        Effect.promise(() =>
          fs.access(file).then(
            () => true,
            () => false
          )
        )
      const claim = Effect.fnUntraced(function* ({ uid, fence }: PostgresTarget) {
        const now = yield* assigned(uid)
        if (now?.fence === fence) return
        if (now !== undefined && now.fence > fence) return yield* fenced(uid)
        yield* outside(
          "postgres.claim",
          "write"
        )(
          Effect.gen(function* () {
            for (const dir of [dirOf(uid), confOf(uid), spoolOf(uid, now)]) {
              yield* Effect.mapError(host.directory(dir), failed)
            }
            yield* writeAssigned(uid, { ...now, fence })
          })
        )
      })

      return PostgresServers.of({
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
        disconnect: (target, credentialVersion) =>
          act("postgres.disconnect", target, (now) =>
            Effect.andThen(
              tellServer(endpoint(now), endSessions),
              writeAssigned(target.uid, { ...now, credentialVersion })
            )
          ),
        makeSlot: (target, slot, anew) =>
          tell(
            "postgres.makeSlot",
            target,
            `${anew ? dropSlot(slot) : ""}
             select pg_create_physical_replication_slot('${slot}', true)
             where not exists (select from pg_replication_slots where slot_name = '${slot}')`
          ),
        dropSlots: (target, slots) => tell("postgres.dropSlots", target, slots.map(dropSlot).join("")),

        inspect: Effect.fn("PostgresServers.inspect")(
          function* (uid, patience) {
            if (!(yield* exists(dirOf(uid)))) return Option.none()
            const now = yield* assigned(uid)
            const certificate =
              now?.certificate === undefined ? "" : yield* readText(path.join(confOf(uid), now.certificate))
            const server: PostgresServer = {
              port: now?.port,
              initialised: yield* exists(path.join(dataOf(uid), "PG_VERSION")),
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
              process: yield* processOf(uid, now?.port, patience),
              startFailures: now?.startFailures,
              failover: now?.failover,
              failedOver: now?.failedOver,
              aloneSince: now?.aloneSince,
              era: now?.era ?? 0,
              credentialVersion: now?.credentialVersion
            }
            return Option.some(server)
          },
          outside("postgres.inspect", "read")
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
          const file = path.join(confOf(uid), now.certificate)
          const settings: PostgresSettings = {
            size,
            port: now.port,
            listenOn: managedHost,
            socketDir: host.socketDir,
            dataDir: dataOf(uid),
            confDir: confOf(uid),
            archiveDir: archived ? spoolOf(uid, now) : undefined,
            follows:
              follows === undefined || primary?.port === undefined
                ? undefined
                : { port: primary.port, slot: follows.slot },
            replicated,
            certificate: file,
            key: file,
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
              yield* host.directory(spoolOf(target.uid, now))
              yield* host.writeFile(path.join(dir, "pg_hba.conf"), files.access)
              yield* host.writeFile(path.join(dir, "pg_ident.conf"), files.identities)
              yield* host.writeFile(path.join(dir, "postgresql.conf"), files.config)
            })
          ),

        initialise: (target) =>
          act("postgres.initialise", target, () =>
            Effect.gen(function* () {
              const { uid } = target
              const making = `${dataOf(uid)}.making`
              // What an interrupted attempt left holds nobody's data.
              yield* host.removeAll(making)
              const result = yield* host.run(programs.initdb, initdbArguments(making), { timeoutMs: 120_000 })
              if (result.code !== 0) {
                return yield* new PostgresServerError({
                  reason: "Failed",
                  message: `initdb failed: ${lastLine(result.output)}`
                })
              }
              yield* Effect.tryPromise({
                try: () => fs.rename(making, dataOf(uid)),
                catch: (cause) =>
                  new PostgresServerError({
                    reason: "Failed",
                    message: "The new data folder could not be named",
                    cause
                  })
              })
            })
          ),

        start: (target) =>
          act("postgres.start", target, (now) =>
            Effect.gen(function* () {
              const { uid } = target
              if ((yield* pidOf(uid)) !== undefined) return
              const logFile = path.join(dirOf(uid), postgresLog)
              const before = yield* logSize(logFile)
              const pid = yield* host.spawn({
                command: programs.postgres,
                args: ["-D", confOf(uid)],
                cwd: dirOf(uid),
                logFile
              })
              const ended = Effect.map(host.isRunning(pid, uid), (alive) => !alive)
              const open = askServer(endpoint(now)).pipe(
                Effect.map(Option.isSome),
                Effect.catchIf(isStarting, () => Effect.succeed(false))
              )
              const settled = yield* Effect.gen(function* () {
                if (yield* open) return "open" as const
                return (yield* ended) ? ("ended" as const) : ("waiting" as const)
              }).pipe(
                Effect.repeat({ until: (state) => state !== "waiting", schedule: everyMoment }),
                Effect.timeoutOption(`${startSeconds} seconds`)
              )
              // Still replaying its log is no failure: the next look finds it busy and waits.
              if (Option.isSome(settled) && settled.value === "ended") {
                const log = yield* logSince(logFile, before)
                const reason = log.split("\n").findLast((line) => /FATAL|PANIC/.test(line)) ?? log
                const message = `The database server ended as it started: ${lastLine(reason)}`
                if (!notOfTheData.test(log)) {
                  const count = (now.startFailures?.count ?? 0) + 1
                  yield* writeAssigned(uid, { ...now, startFailures: { count, message } })
                }
                return yield* new PostgresServerError({ reason: "StartFailed", message })
              }
              if (Option.isSome(settled) && now.startFailures !== undefined) {
                const { startFailures: _, ...opened } = now
                yield* writeAssigned(uid, opened)
              }
            })
          ),

        reload: (target) => tell("postgres.reload", target, "select pg_reload_conf()"),

        stop: (target) =>
          Effect.flatMap(pidOf(target.uid), (pid) =>
            pid === undefined ? Effect.void : act("postgres.stop", target, () => halt(target.uid, pid))
          ),

        setRole: (target, roleExists, password) =>
          Effect.flatMap(scramVerifier(password), (verifier) => {
            // A verifier holds nothing that needs escaping.
            const role = `role ${appUser} with login inherit nosuperuser nocreatedb nocreaterole noreplication nobypassrls password '${verifier}'`
            return tell(
              "postgres.setRole",
              target,
              roleExists
                ? `alter ${role}`
                : // Set once: from then on the path is the application's to choose.
                  `create ${role}; alter role ${appUser} set search_path = "$user", public, ${extensionSchema}`
            )
          }).pipe(Effect.andThen(tell("postgres.disconnect", target, endSessions))),

        createDatabase: (target) =>
          tell(
            "postgres.createDatabase",
            target,
            `create database ${appDatabase} owner ${appUser} template ${controlDatabase}`
          ),

        closeDatabases: (target) =>
          tell(
            "postgres.closeDatabases",
            target,
            `do $$ declare name text; begin
              for name in select datname from pg_database where datallowconn loop
                execute format('revoke all on database %I from public', name);
              end loop;
            end $$`
          ),

        createExtension: (target) =>
          tell(
            "postgres.createExtension",
            target,
            `create schema if not exists ${extensionSchema};
             grant usage on schema ${extensionSchema} to public;
             create extension if not exists pg_stat_statements schema ${extensionSchema}`
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

const lastLine = (text: string): string => text.trim().split("\n").at(-1)?.slice(0, 300) ?? "no reason given"

/** Another data folder would meet the same: an address that is taken, a setting, memory, a full disk. */
const notOfTheData =
  /could not bind|could not create|lock file|configuration file|shared memory|allocate memory|No space left|another postmaster|already in use/i

const endSessions = `select pg_terminate_backend(pid) from pg_stat_activity where usename = '${appUser}'`

/** A slot that somebody uses stays: whoever it is ends first. Names are made by the platform. */
const dropSlot = (slot: string) =>
  `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '${slot}' and not active;`
