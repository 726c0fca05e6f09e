/** `svc down`: stops everything that was started in the data folder, and with `--delete` removes the data. */
import * as fs from "node:fs/promises"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { known } from "#src/access/bootstrap.ts"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { edgePlace, makeHaproxy } from "#src/infra/haproxy/process.ts"
import { Host } from "#src/infra/host/Host.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { StateStoreServer } from "#src/infra/postgres/StateStoreServer.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { changeEntries, readEntries } from "./credentials.ts"
import { type CliFailure, exitCodes, failure } from "./failure.ts"
import { confirmName } from "./flags.ts"
import { localConfig } from "./local-config.ts"
import { dataIsIn, machine, store } from "./local-store.ts"
import { say } from "./output.ts"
import { type ControlPlane, isRunning, running } from "./pid-file.ts"

export const down = (flags: { readonly delete: boolean; readonly yes: boolean }) =>
  Effect.gen(function* () {
    const { dataDir, databaseUrl } = yield* AppConfig
    if (!(yield* dataIsIn(dataDir))) return yield* say(`There is nothing in ${dataDir}`)
    if (flags.delete) {
      if (databaseUrl !== undefined) {
        return yield* failure(
          `The state is in an outside Postgres (SVC_DATABASE_URL), and would name data that is gone. Delete the resources first (svc apply --prune), then drop that database and remove ${dataDir}`,
          exitCodes.usage
        )
      }
      yield* confirmName(
        `This deletes everything in ${dataDir}: all databases, caches and the state of the platform.`,
        "delete",
        flags.yes
      )
    }
    yield* Effect.forEach(yield* running(dataDir), stop, { concurrency: "unbounded", discard: true })
    yield* stopServers(flags.delete)
    if (flags.delete) {
      yield* remove(dataDir)
      yield* say(`${dataDir} is gone`)
    }
  }).pipe(
    Effect.provide(localConfig),
    Effect.mapError((error): CliFailure => (error._tag === "CliFailure" ? error : failure(error.message)))
  )

const remove = (target: string) =>
  Effect.tryPromise({
    try: () => fs.rm(target, { recursive: true, force: true, maxRetries: 5 }),
    catch: (cause) => failure(`${target} cannot be removed: ${String(cause)}`)
  })

const stop = Effect.fnUntraced(function* (one: ControlPlane) {
  const signalled = yield* Effect.try({
    try: () => process.kill(one.pid, "SIGTERM"),
    catch: (cause) =>
      failure(`The control plane (process ${one.pid}) cannot be told to stop: ${String(cause)}`)
  }).pipe(Effect.result)
  const ended = yield* isRunning(one).pipe(
    Effect.repeat({ until: (still) => !still, schedule: Schedule.spaced("100 millis") }),
    Effect.timeoutOption(signalled._tag === "Success" ? "60 seconds" : "1 second")
  )
  if (ended._tag === "None") {
    if (signalled._tag === "Failure") return yield* signalled.failure
    return yield* failure(`The control plane (process ${one.pid}) does not end; try again or kill it`)
  }
  yield* say(`The control plane at ${one.apiUrl} is stopped`)
})

/** Caches are asked over a socket with a key that is in the store, so the store goes last. */
const stopServers = (forGood: boolean) =>
  Effect.gen(function* () {
    const { databaseUrl } = yield* AppConfig
    const adapters = Layer.mergeAll(
      PostgresServers.layer,
      RedisServers.layer,
      ContainerEngine.layer,
      Installation.layer
    ).pipe(Layer.provide(PlatformSecrets.layer), Layer.provideMerge(store))
    yield* Effect.gen(function* () {
      const host = yield* Host
      yield* Effect.catch(makeHaproxy(host).stop(edgePlace(host)), ({ message }) =>
        say(`The edge could not be stopped: ${message}`)
      )
      yield* stopContainers(forGood)
      yield* (yield* RedisServers).stopAll
      yield* (yield* PostgresServers).stopAll
      // What stays behind is empty and is found again by the next start.
      yield* Effect.ignore((yield* Host).holding.leave)
      if (forGood) yield* forget
    }).pipe(Effect.provide(adapters))
    yield* say(`The edge, caches and databases are stopped${forGood ? "" : "; their data is kept"}`)
    if (databaseUrl === undefined) {
      yield* (yield* StateStoreServer).stop
      yield* say("The state store is stopped")
    }
    if (forGood) yield* remove((yield* Host).socketDir)
  }).pipe(Effect.provide(machine))

/** Those of executions. An engine that does not answer is no reason to leave everything else running. */
const stopContainers = Effect.fnUntraced(function* (forGood: boolean) {
  const { label } = yield* Installation
  yield* Effect.catch((yield* ContainerEngine).stopAll(label, forGood), ({ message }) =>
    say(`Containers of executions could not be stopped: ${message}`)
  )
})

/** Credentials of a store that is going away open nothing any more. */
const forget = Effect.gen(function* () {
  const entries = yield* readEntries
  const tokens = entries.flatMap(({ apiKey, session }) =>
    [apiKey, session].filter((one) => one !== undefined)
  )
  const going = yield* known(tokens)
  if (going.size === 0) return
  yield* changeEntries((now) =>
    now.filter(({ apiKey, session }) => !going.has(apiKey ?? "") && !going.has(session ?? ""))
  )
}).pipe(
  // What is left behind is of no use to anybody, so it is no reason to keep the data.
  Effect.ignore
)
