/** `svc down`: stops everything that was started in the data folder, and with `--delete` removes the data. */
import * as fs from "node:fs/promises"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { AppConfig } from "../config.ts"
import { Host } from "../infra/Host.ts"
import { PostgresServers } from "../infra/PostgresServers.ts"
import { PostgresBinaries } from "../infra/postgres-binaries.ts"
import { RedisServers } from "../infra/RedisServers.ts"
import { StateStoreServer } from "../infra/StateStoreServer.ts"
import { Db } from "../store/Db.ts"
import { KeyRing } from "../store/KeyRing.ts"
import { PlatformSecrets } from "../store/Secrets.ts"
import { type CliFailure, failure } from "./failure.ts"
import { confirmName } from "./flags.ts"
import { say } from "./output.ts"
import { runningControlPlane } from "./pid-file.ts"

const exists = (target: string) =>
  Effect.promise(() =>
    fs.access(target).then(
      () => true,
      () => false
    )
  )

export const down = (flags: { readonly delete: boolean; readonly yes: boolean }) =>
  Effect.gen(function* () {
    const config = yield* AppConfig
    if (!(yield* exists(config.dataDir))) return yield* say(`There is nothing in ${config.dataDir}`)
    if (flags.delete) {
      yield* confirmName(
        `This deletes everything in ${config.dataDir}: all databases, caches and the state of the platform.`,
        "delete",
        flags.yes
      )
    }
    yield* stopControlPlane(config.dataDir)
    yield* stopServers
    if (flags.delete) {
      yield* Effect.tryPromise({
        try: () => fs.rm(config.dataDir, { recursive: true, force: true, maxRetries: 5 }),
        catch: (cause) => failure(`${config.dataDir} cannot be removed: ${String(cause)}`)
      })
      yield* say(`${config.dataDir} is gone`)
    }
  }).pipe(
    Effect.provide(AppConfig.layer),
    Effect.mapError((error): CliFailure => (error._tag === "CliFailure" ? error : failure(error.message)))
  )

const stopControlPlane = Effect.fnUntraced(function* (dataDir: string) {
  const pid = yield* runningControlPlane(dataDir)
  if (pid === undefined) return
  process.kill(pid, "SIGTERM")
  const ended = yield* runningControlPlane(dataDir).pipe(
    Effect.repeat({ until: (now) => now === undefined, schedule: Schedule.spaced("100 millis") }),
    Effect.timeoutOption("30 seconds")
  )
  if (ended._tag === "None")
    return yield* failure(`The control plane (process ${pid}) does not end; try again or kill it`)
  yield* say("The control plane is stopped")
})

/** Caches are asked over a socket with a key that is in the store, so the store goes last. */
const stopServers = Effect.gen(function* () {
  const { databaseUrl } = yield* AppConfig
  const stateStore = yield* StateStoreServer
  const url = databaseUrl ?? (yield* stateStore.ensureRunning)
  const adapters = Layer.mergeAll(PostgresServers.layer, RedisServers.layer).pipe(
    Layer.provide(PlatformSecrets.layer),
    Layer.provide(KeyRing.layer),
    Layer.provide(Db.layer({ url }))
  )
  yield* Effect.gen(function* () {
    yield* (yield* RedisServers).stopAll
    yield* (yield* PostgresServers).stopAll
  }).pipe(Effect.provide(adapters))
  yield* say("Caches and databases are stopped; their data is kept")
  if (databaseUrl === undefined) {
    yield* stateStore.stop
    yield* say("The state store is stopped")
  }
}).pipe(
  Effect.provide(
    StateStoreServer.layer.pipe(Layer.provideMerge(PostgresBinaries.layer), Layer.provideMerge(Host.layer))
  )
)
