/** A machine for managed Postgres servers in a temporary folder, and the ways in which tests look at it. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import postgres from "postgres"
import * as database from "#reconcilers/database/database.ts"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import type { DatabaseSpec } from "#schemas/database.ts"
import { AppConfig } from "#src/config.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Hydrations } from "#src/infra/postgres/Hydrations.ts"
import { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import { tellServer } from "#src/infra/postgres/PostgresControl.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { reachGoal } from "#test/reconcilers/settle.ts"
import { type Machine, machine, makeResource, passwordOf } from "./machine.ts"
import { copyingHost } from "./new-data.ts"
import { managedPorts } from "./postgres.ts"
import { processesNaming } from "./processes.ts"

export type DatabaseWorld = Machine
export const databaseWorld = machine
export type DatabaseResource = Resource<DatabaseSpec>

export const databaseServices = ({ dataDir, secrets }: DatabaseWorld) =>
  PostgresServers.layer.pipe(
    Layer.provideMerge(PostgresBinaries.layer),
    Layer.provideMerge(copyingHost),
    Layer.provideMerge(CertificateAuthority.layer),
    Layer.provideMerge(AppConfig.layerWith({ dataDir, managedPorts })),
    Layer.provideMerge(secrets.layer)
  )

export const databaseReconciler = (world: DatabaseWorld) =>
  database.layer.pipe(
    Layer.provide(Hydrations.layer),
    Layer.provide(databaseServices(world)),
    Layer.provideMerge(Registry.layer)
  )

/** Brings a database to what it should be, as the engine would. */
export const settleDatabase = (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("Database")!
    yield* reachGoal(reconciler, resource, 240_000)
  }).pipe(Effect.provide(databaseReconciler(world), { local: true }), Effect.orDie)

export const makeDatabase = (world: DatabaseWorld, spec: Partial<DatabaseSpec> = {}): DatabaseResource =>
  makeResource(world, {
    kind: "Database",
    name: "main",
    environment: "production",
    spec: {
      sku: "db-n1",
      region: "local",
      credentialVersion: 1,
      backup: defaultBackupPolicy,
      replicas: 0,
      ...spec
    }
  })

export const folderOf = ({ dataDir }: DatabaseWorld, { uid }: { readonly uid: string }): string =>
  path.join(dataDir, "databases", uid)

export const inspectDatabase = (world: DatabaseWorld, { uid }: DatabaseResource) =>
  Effect.flatMap(PostgresServers, (servers) => servers.inspect(uid)).pipe(
    Effect.map(Option.getOrThrow),
    Effect.provide(databaseServices(world), { local: true })
  )

/** A statement as the control user, behind the platform's back. */
export const disturb = (statement: string) => (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.gen(function* () {
    const server = yield* inspectDatabase(world, resource)
    const socketDir = path.join(world.dataDir, "run")
    yield* tellServer({ socketDir, port: server.port ?? 0 }, statement)
  })

/** Runs statements as an application would: TLS with verification against the platform's authority. */
export const asApplication = <A>(
  world: DatabaseWorld,
  resource: DatabaseResource,
  body: (sql: postgres.Sql) => Promise<A>,
  options: { readonly password?: string; readonly database?: string; readonly ssl?: false } = {}
) =>
  Effect.gen(function* () {
    const server = yield* inspectDatabase(world, resource)
    const ca = yield* Effect.map(CertificateAuthority, (authority) => authority.caPem).pipe(
      Effect.provide(databaseServices(world), { local: true })
    )
    return yield* Effect.tryPromise(async () => {
      const sql = postgres({
        host: "127.0.0.1",
        port: server.port ?? 0,
        database: options.database ?? "app",
        username: "app",
        password: options.password ?? passwordOf(world, resource),
        ssl: options.ssl ?? { ca, rejectUnauthorized: true },
        max: 1,
        connect_timeout: 30,
        fetch_types: false,
        onnotice: () => {}
      })
      try {
        return await body(sql)
      } finally {
        await sql.end({ timeout: 1 })
      }
    })
  })

/** Equal for equal databases: identifiers, ports, digests and the names made from them are replaced by words. */
export const databaseSnapshot = (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.gen(function* () {
    const server = yield* inspectDatabase(world, resource)
    const plain = (text: string) =>
      text
        .replaceAll(world.dataDir, "DATA")
        .replaceAll(resource.uid, "UID")
        .replaceAll(/server-[0-9a-f]+\.pem/g, "CERTIFICATE")
        .replaceAll(/[0-9a-f]{32}/g, "DIGEST")
        // The last one, and as a whole word: a digest, or a size, may hold the same digits.
        .replaceAll(new RegExp(`\\b${server.port}\\b`, "g"), "PORT")
    const live = server.process._tag === "Running" ? server.process.live : undefined
    const signsIn = yield* asApplication(
      world,
      resource,
      async (sql) => (await sql`select current_user as name`)[0]
    ).pipe(Effect.catch(() => Effect.succeed("refused")))
    return {
      files: [server.files.config, server.files.access, server.files.identities].map(plain),
      live: live === undefined ? undefined : { ...live, config: null, verifier: null, archiveError: null },
      signsIn
    }
  })

export const databaseRemains = (world: DatabaseWorld, { uid }: { readonly uid: string }) =>
  Effect.gen(function* () {
    const folder = folderOf(world, { uid })
    const left = [
      ...[folder].filter((file) => fs.existsSync(file)),
      ...fs
        .readdirSync(path.join(world.dataDir, "ports"))
        .filter((port) => fs.readlinkSync(path.join(world.dataDir, "ports", port)) === uid)
        .map((port) => `port ${port}`)
    ]
    // What a server that was killed had begun, such as copying a segment of its log, ends by itself soon after it.
    if (left.length === 0) yield* endOfProcesses(uid)
    return [...left, ...processesNaming(uid).map(({ pid, line }) => `process ${pid}: ${line}`)]
  })

/** Until no process names it, or for some seconds: whoever asks sees what is left then. */
const endOfProcesses = (text: string) =>
  Effect.sync(() => processesNaming(text).length === 0).pipe(
    Effect.repeat({ until: (none) => none, schedule: Schedule.spaced("50 millis") }),
    Effect.timeoutOption("20 seconds")
  )
