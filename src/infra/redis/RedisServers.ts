/**
 * Managed cache servers (redis-server or valkey-server, 7 or newer) on this machine: looking at one, and the
 * single acts that change one. Which act is due is the reconciler's matter.
 *
 * Each server has a folder `caches/<uid>` in the data folder, a TLS port, and a Unix socket that only the
 * control plane uses. It is started detached: it outlives the control plane, and the next one finds it by its
 * pid file and its socket. Looking takes everything from what is really there.
 *
 * Acts carry the fencing number of the reconcile that takes them and are refused once a later one has begun.
 */
import { createHash, createHmac, randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import type { IssuedCertificate } from "../CertificateAuthority.ts"
import { Host } from "../host/Host.ts"
import type { HeldServer, ServerLimits } from "../host/server-limits.ts"
import { type Assigned, makeControlFiles, type RedisTarget } from "./control-file.ts"
import { failed, RedisServerError } from "./errors.ts"
import { appendOnlyFile, exists, removeCertificates } from "./files.ts"
import { makeProcesses, type RedisProcess } from "./process.ts"
import { killScript, readLive, setSettings, setUsers, shutDown } from "./RedisControl.ts"
import {
  appendOnlyName,
  appUser,
  configName,
  type LiveSetting,
  liveSettingNames,
  liveSettings,
  type RedisDesired,
  renderConfig,
  renderUsers,
  userRules,
  usersName
} from "./settings.ts"

export { type RedisProcess, RedisServerError, type RedisTarget }

/** What the reconciler chooses; the rest of {@link RedisDesired} is assigned to the server. */
export type RedisSettings = Pick<
  RedisDesired,
  "memoryMb" | "cpus" | "maxClients" | "evictionPolicy" | "appendOnly" | "passwordDigest"
>

/** What is there of a server. */
export interface RedisServer {
  /** Assigned port; absent while the server is half made. */
  readonly port: number | undefined
  /** The certificate that the server is to use, in PEM; absent when there is none. */
  readonly certificate: string | undefined
  readonly config: string | undefined
  readonly users: string | undefined
  /** The append-only file: `partial` until it holds everything that was in memory when it was turned on. */
  readonly appendOnlyFile: "none" | "partial" | "complete"
  readonly process: RedisProcess
  /** How the machine holds it to its limits. */
  readonly held: HeldServer
  /** What its files and its live settings should be; absent while it has no port or no certificate. */
  readonly expected: (settings: RedisSettings) => RedisExpected | undefined
}

export interface RedisExpected {
  readonly config: string
  readonly users: string
  readonly live: ReadonlyMap<LiveSetting, string>
}

type Act = Effect.Effect<void, RedisServerError>

/** Under which name a server's port is reserved. */
export const portOwner = (uid: string): string => `caches/${uid}`

export class RedisServers extends Context.Service<
  RedisServers,
  {
    /** Looks; none when nothing of the server exists. */
    readonly inspect: (uid: string) => Effect.Effect<Option.Option<RedisServer>, RedisServerError>
    /** Fails when no server program is installed. */
    readonly requireProgram: Act
    /** Begins a reconcile: makes the folder and remembers the fence. Refuses a lower one. */
    readonly claim: (target: RedisTarget) => Act
    readonly reservePort: (target: RedisTarget) => Act
    readonly writeCertificate: (target: RedisTarget, issued: IssuedCertificate) => Act
    /** Writes the two files that the server starts from. */
    readonly writeConfig: (target: RedisTarget, settings: RedisSettings) => Act
    /** Starts the server and waits until it listens; it may still be reading its data then. */
    readonly start: (target: RedisTarget, limits: ServerLimits) => Act
    /** Holds the server to its limits, whether it runs or not, without stopping it. */
    readonly setLimits: (target: RedisTarget, limits: ServerLimits) => Act
    /** Changes those settings of the running server that differ, all of them or none. */
    readonly setConfig: (target: RedisTarget, settings: RedisSettings) => Act
    /**
     * Makes the running server's users right. A password that is no longer valid is refused, and connections made
     * with it have ended, before this answers.
     */
    readonly setUsers: (target: RedisTarget, settings: RedisSettings) => Act
    /** Writes the append-only file of a running server anew, from what it holds in memory. */
    readonly rebuildAppendOnlyFile: (target: RedisTarget) => Act
    /** Removes the append-only file of a server that is to keep none. */
    readonly discardAppendOnlyFile: (target: RedisTarget) => Act
    /** Ends the script that keeps the server busy. Fails with the reason `Unkillable` when it has written. */
    readonly killScript: (target: RedisTarget) => Act
    /**
     * Ends a server that a script keeps busy. What was acknowledged before is in the append-only file, if it keeps one;
     * what the script has written is not.
     */
    readonly shutDown: (target: RedisTarget) => Act
    /** Ends the server in good order, and by force when it does not end; nothing running is success. */
    readonly stop: (target: RedisTarget) => Act
    readonly releasePort: (target: RedisTarget) => Act
    /** Removes every file of a server that was stopped. Its folder goes last: until then it counts as there. */
    readonly delete: (target: RedisTarget) => Act
    /** Stops every server of this machine, whoever works on it: for an operator who takes the machine down. */
    readonly stopAll: Act
  }
>()("svc/infra/RedisServers") {
  static readonly layer = Layer.effect(
    RedisServers,
    Effect.gen(function* () {
      const host = yield* Host
      const { managedHost } = yield* AppConfig
      const cachesDir = path.join(host.dataDir, "caches")
      const dirOf = (uid: string) => path.join(cachesDir, uid)
      const control = makeControlFiles(host, dirOf)
      const processes = makeProcesses(host)
      const platform = yield* PlatformSecrets
      const controlKey = yield* platform.ensure(
        "redis-control-key",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )

      /**
       * The password of the control user is derived from one sealed key, so it is in no file and survives the
       * loss of the server's folder.
       */
      const controlPassword = (uid: string) =>
        createHmac("sha256", Redacted.value(controlKey)).update(`redis-control/${uid}`).digest("base64url")
      const placeOf = (uid: string) => ({
        dir: dirOf(uid),
        endpoint: {
          // 22 characters instead of 36: the path of a socket may have 107 bytes.
          socket: path.join(
            host.socketDir,
            `${Buffer.from(uid.replaceAll("-", ""), "hex").toString("base64url")}.redis`
          ),
          password: Redacted.make(controlPassword(uid))
        }
      })
      const onHost = Effect.mapError(failed)
      const readFile = (uid: string, name: string) =>
        Effect.map(onHost(host.readFile(path.join(dirOf(uid), name))), Option.getOrUndefined)
      const writeFile = (uid: string, name: string, content: string) =>
        onHost(host.writeFile(path.join(dirOf(uid), name), content))

      const desiredOf = (
        uid: string,
        assigned: Assigned,
        settings: RedisSettings
      ): RedisDesired | undefined => {
        if (assigned.port === undefined || assigned.certificate === undefined) return undefined
        const { dir, endpoint } = placeOf(uid)
        return {
          ...settings,
          dir,
          socket: endpoint.socket,
          host: managedHost,
          port: assigned.port,
          certificate: assigned.certificate,
          controlDigest: createHash("sha256").update(controlPassword(uid)).digest("hex")
        }
      }

      /** One act of the latest reconcile on the server, as a call to the outside. */
      const act = <A>(
        name: string,
        target: RedisTarget,
        body: (assigned: Assigned) => Effect.Effect<A, RedisServerError>
      ) => externalCall(`redis.${name}`, "write")(Effect.flatMap(control.check(target), body))
      const configured = <A>(
        name: string,
        target: RedisTarget,
        settings: RedisSettings,
        body: (desired: RedisDesired) => Effect.Effect<A, RedisServerError>
      ) =>
        act(name, target, (assigned) => {
          const desired = desiredOf(target.uid, assigned, settings)
          return desired === undefined
            ? Effect.fail(
                new RedisServerError({
                  reason: "Failed",
                  message: "The server has no port or certificate yet"
                })
              )
            : body(desired)
        })

      const inspect = Effect.fnUntraced(function* (uid: string) {
        const place = placeOf(uid)
        const controlFile = yield* control.read(uid)
        if (
          controlFile === undefined &&
          !(yield* exists(place.dir)) &&
          !(yield* exists(place.endpoint.socket))
        )
          return Option.none()
        const assigned: Assigned = controlFile ?? { fence: 0n }
        const { certificate } = assigned
        const process = yield* processes.find(place, liveSettingNames)
        const pid = process._tag === "Stopped" ? undefined : process.pid
        const server: RedisServer = {
          port: assigned.port,
          certificate: certificate === undefined ? undefined : yield* readFile(uid, certificate),
          config: yield* readFile(uid, configName),
          users: yield* readFile(uid, usersName),
          appendOnlyFile: yield* appendOnlyFile(place.dir),
          process,
          held: yield* onHost(host.holding.look(uid, pid)),
          expected: (settings) => {
            const desired = desiredOf(uid, assigned, settings)
            return desired === undefined
              ? undefined
              : {
                  config: renderConfig(desired),
                  users: renderUsers(desired),
                  live: liveSettings(desired)
                }
          }
        }
        return Option.some(server)
      })

      return RedisServers.of({
        inspect: (uid) => externalCall("redis.inspect", "read")(inspect(uid)),
        requireProgram: Effect.asVoid(processes.program),
        claim: control.claim,
        reservePort: (target) =>
          act("reservePort", target, () =>
            Effect.flatMap(onHost(host.reservePort(portOwner(target.uid))), (port) =>
              control.assign(target, { port })
            )
          ),
        writeCertificate: (target, issued) =>
          act("writeCertificate", target, (assigned) =>
            Effect.gen(function* () {
              // A name of its own for each certificate: the server's settings then tell which one it has loaded.
              const certificate = `tls-${issued.expiresAt.getTime()}-${randomBytes(4).toString("hex")}.pem`
              yield* writeFile(
                target.uid,
                certificate,
                issued.certificatePem + Redacted.value(issued.privateKeyPem)
              )
              yield* control.assign(target, { certificate })
              yield* removeCertificates(dirOf(target.uid), [certificate, assigned.certificate])
            })
          ),
        writeConfig: (target, settings) =>
          configured("writeConfig", target, settings, (desired) =>
            Effect.andThen(
              writeFile(target.uid, usersName, renderUsers(desired)),
              writeFile(target.uid, configName, renderConfig(desired))
            )
          ),
        start: (target, limits) =>
          act("start", target, () => processes.start(placeOf(target.uid), { name: target.uid, limits })),
        setLimits: (target, limits) =>
          act("setLimits", target, () =>
            Effect.flatMap(processes.pidOf(placeOf(target.uid)), (pid) =>
              onHost(host.holding.mend(target.uid, pid, limits))
            )
          ),
        setConfig: (target, settings) =>
          configured("setConfig", target, settings, (desired) =>
            Effect.gen(function* () {
              const { endpoint } = placeOf(target.uid)
              const { settings: live } = yield* onHost(readLive(endpoint, liveSettingNames))
              const wrong = [...liveSettings(desired)].filter(([name, value]) => live.get(name) !== value)
              if (wrong.length > 0) yield* onHost(setSettings(endpoint, wrong))
            })
          ),
        setUsers: (target, settings) =>
          configured("setUsers", target, settings, (desired) =>
            Effect.gen(function* () {
              const { endpoint } = placeOf(target.uid)
              const { users } = yield* onHost(readLive(endpoint, liveSettingNames))
              const rules = userRules(desired)
              const passwords = users.get(appUser)?.passwords ?? []
              yield* onHost(
                setUsers(endpoint, rules, {
                  disconnect: passwords.length !== 1 || passwords[0] !== desired.passwordDigest,
                  others: [...users.keys()].filter((name) => !rules.has(name))
                })
              )
            })
          ),
        rebuildAppendOnlyFile: (target) =>
          act("rebuildAppendOnlyFile", target, () =>
            Effect.gen(function* () {
              const { endpoint } = placeOf(target.uid)
              yield* onHost(setSettings(endpoint, [["appendonly", "no"]]))
              yield* onHost(setSettings(endpoint, [["appendonly", "yes"]]))
            })
          ),
        discardAppendOnlyFile: (target) =>
          act("discardAppendOnlyFile", target, () =>
            onHost(host.removeAll(path.join(dirOf(target.uid), appendOnlyName)))
          ),
        killScript: (target) =>
          act("killScript", target, () =>
            Effect.gen(function* () {
              if (yield* onHost(killScript(placeOf(target.uid).endpoint))) return
              return yield* new RedisServerError({
                reason: "Unkillable",
                message: "The script that keeps the server busy has written and cannot be ended by itself"
              })
            })
          ),
        shutDown: (target) =>
          act("shutDown", target, () => {
            const place = placeOf(target.uid)
            return Effect.andThen(shutDown(place.endpoint), processes.stop(place))
          }),
        stop: (target) => act("stop", target, () => processes.stop(placeOf(target.uid))),
        releasePort: (target) =>
          act("releasePort", target, () => onHost(host.releasePorts(portOwner(target.uid)))),
        delete: (target) =>
          act("delete", target, () =>
            Effect.gen(function* () {
              const { dir, endpoint } = placeOf(target.uid)
              yield* onHost(host.holding.release(target.uid))
              yield* onHost(host.removeAll(endpoint.socket))
              yield* onHost(host.removeAll(dir))
            })
          ),
        stopAll: Effect.gen(function* () {
          const uids = yield* Effect.promise(() => fs.readdir(cachesDir).catch((): Array<string> => []))
          yield* Effect.forEach(
            uids,
            (uid) => externalCall("redis.stop", "write")(processes.stop(placeOf(uid))),
            {
              concurrency: 8,
              discard: true
            }
          )
        })
      })
    })
  )
}
