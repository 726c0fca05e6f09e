/**
 * The control plane's own Postgres, for those who bring none. Several control planes over one data folder share it,
 * and it outlives them: ending one must not end the others. `svc down` stops it.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import { Host, HostError } from "../host/Host.ts"
import { oomScores } from "../host/server-limits.ts"
import { postgresLog } from "../host/server-logs.ts"
import { PostgresBinaries } from "./PostgresBinaries.ts"

const owner = "state-store"
const user = "svc"
const everyMoment = Schedule.spaced("25 millis")
const startSeconds = 60
const stopSeconds = 60

export class StateStoreServer extends Context.Service<
  StateStoreServer,
  {
    /** Makes it, starts it or finds it running, and answers a superuser's URL once it takes connections. */
    readonly ensureRunning: Effect.Effect<Redacted.Redacted, HostError>
    readonly stop: Effect.Effect<void, HostError>
  }
>()("svc/infra/StateStoreServer") {
  static readonly layer = Layer.effect(
    StateStoreServer,
    Effect.gen(function* () {
      const host = yield* Host
      const programs = yield* PostgresBinaries
      const dir = path.join(host.dataDir, "postgres")
      const data = path.join(dir, "data")
      const logFile = path.join(dir, postgresLog)
      const passwordFile = path.join(dir, "password")

      const pid = Effect.gen(function* () {
        const text = yield* host.readFile(path.join(data, "postmaster.pid"))
        const found = Number(Option.getOrElse(text, () => "").split("\n", 1)[0])
        if (!Number.isInteger(found) || found <= 1) return undefined
        return (yield* host.isRunning(found, data)) ? found : undefined
      })

      /** Of several processes that make one at once, the first to link its file has made it. */
      const password = Effect.tryPromise({
        try: async () => {
          const temporary = `${passwordFile}.${process.pid}.new`
          await fs.writeFile(temporary, randomBytes(24).toString("base64url"), { mode: 0o600, flush: true })
          if (host.runAs !== undefined) await fs.chown(temporary, host.runAs.uid, host.runAs.gid)
          await fs.link(temporary, passwordFile).catch((error: NodeJS.ErrnoException) => {
            if (error.code !== "EEXIST") throw error
          })
          await fs.rm(temporary)
          return (await fs.readFile(passwordFile, "utf8")).trim()
        },
        catch: (cause) =>
          new HostError({ message: `The state store's password file: ${String(cause)}`, cause })
      })

      const settings = (port: number) =>
        [
          "listen_addresses = '127.0.0.1'",
          `port = ${port}`,
          "unix_socket_directories = ''",
          "max_connections = 100",
          "shared_buffers = '128MB'",
          "password_encryption = 'scram-sha-256'",
          "min_wal_size = '128MB'",
          "max_wal_size = '1GB'",
          "io_method = sync",
          "jit = off",
          "log_min_error_statement = panic",
          "timezone = 'UTC'",
          ""
        ].join("\n")

      const initialise = Effect.gen(function* () {
        const making = path.join(dir, `data.${process.pid}`)
        yield* host.removeAll(making)
        const made = yield* host.run(
          programs.initdb,
          [
            "--pgdata",
            making,
            "--username",
            user,
            "--pwfile",
            passwordFile,
            "--auth",
            "scram-sha-256",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--data-checksums",
            "--no-instructions"
          ],
          { timeoutMs: 120_000 }
        )
        if (made.code !== 0) {
          return yield* new HostError({
            message: `initdb of the state store failed: ${made.output.trim().split("\n").at(-1)}`
          })
        }
        yield* Effect.promise(() => fs.rename(making, data)).pipe(
          // Another process was first.
          Effect.catchDefect(() => host.removeAll(making))
        )
      })

      const spawn = Effect.gen(function* () {
        const port = yield* host.reservePort(owner)
        yield* host.writeFile(path.join(data, "postgresql.conf"), settings(port))
        return yield* host.spawn({
          command: programs.postgres,
          args: ["-D", data],
          cwd: dir,
          logFile,
          oomScore: oomScores.platform
        })
      })

      return StateStoreServer.of({
        ensureRunning: Effect.gen(function* () {
          yield* host.directory(dir)
          const secret = yield* password
          const exists = Option.isSome(yield* host.readFile(path.join(data, "PG_VERSION")))
          if (!exists) yield* initialise
          if ((yield* pid) === undefined) yield* spawn
          const port = yield* host.reservePort(owner)
          const open = yield* Effect.promise(() => accepts(port)).pipe(
            Effect.repeat({ until: (yes) => yes, schedule: everyMoment }),
            Effect.timeoutOption(`${startSeconds} seconds`)
          )
          if (Option.isNone(open)) {
            const log = Option.getOrElse(yield* host.readFile(logFile), () => "")
            return yield* new HostError({
              message: `The state store did not start within ${startSeconds} s (${logFile}): ${log.trim().split("\n").at(-1)}`
            })
          }
          return Redacted.make(`postgres://${user}:${secret}@127.0.0.1:${port}/postgres`)
        }).pipe(Effect.withSpan("StateStoreServer.ensureRunning")),

        stop: Effect.gen(function* () {
          const running = yield* pid
          if (running === undefined) return
          yield* host.kill(running, "SIGINT")
          const ended = yield* pid.pipe(
            Effect.repeat({ until: (now) => now === undefined, schedule: everyMoment }),
            Effect.timeoutOption(`${stopSeconds} seconds`)
          )
          if (Option.isNone(ended)) {
            return yield* new HostError({ message: `The state store (process ${running}) does not end` })
          }
        })
      })
    })
  )
}

const accepts = (port: number) =>
  new Promise<boolean>((resolve) => {
    const socket = net.connect({ host: "127.0.0.1", port })
    const done = (yes: boolean) => {
      socket.destroy()
      resolve(yes)
    }
    socket.once("connect", () => done(true)).once("error", () => done(false))
  })
