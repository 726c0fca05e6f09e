/** A store, a real database server, and the loops that back it up, each of which a test can stop and start again. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import postgres from "postgres"
import type { BackupPolicy } from "#schemas/backup-policy.ts"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import { WalRanges } from "#src/backups/archive/WalRanges.ts"
import { Remotes } from "#src/backups/destinations/Remotes.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { BackupOptions } from "#src/backups/options.ts"
import { localPlace, type Place, PlaceError } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import * as runner from "#src/backups/runner.ts"
import { AppConfig } from "#src/config.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { appDatabase, controlUser } from "#src/infra/postgres/settings.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { reachGoal } from "#test/reconcilers/settle.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import {
  type DatabaseResource,
  type DatabaseWorld,
  databaseReconciler,
  databaseWorld,
  folderOf,
  makeDatabase
} from "#test/setup/databases.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { copyingHost } from "#test/setup/new-data.ts"

export interface BackupWorld extends DatabaseWorld {
  readonly storeUrl: Redacted.Redacted
  /** For looks at the store, as its owner. */
  readonly store: postgres.Sql
  /** Destinations, by id: folders that stand for buckets. Tests replace them by places that make trouble. */
  readonly destinations: Map<string, Place>
  readonly databases: Map<string, DatabaseResource>
}

const quick = (values: Partial<BackupOptions> = {}) =>
  Effect.map(
    BackupOptions,
    (defaults): BackupOptions => ({
      ...defaults,
      lookMs: 200,
      planMs: 1_000,
      // Longer than a process may be kept from working.
      leaseSeconds: 10,
      heartbeatMs: 500,
      reserveBytes: 0,
      drillEveryMs: Number.POSITIVE_INFINITY,
      debrisAfterMs: 10_000,
      retrySeconds: 0,
      ...values
    })
  )

const gone = new PlaceError({ reason: "not_found", message: "There is no such backup destination" })

/** One process's parts, without its loops. */
export const services = (world: Omit<StoreWorld, "store">, values: Partial<BackupOptions> = {}) =>
  Layer.mergeAll(Repository.layer).pipe(
    Layer.provideMerge(Layer.mergeAll(Ledger.layer, WalRanges.layer, Jobs.layer)),
    Layer.provideMerge(
      Layer.succeed(Remotes, {
        current: (_, id) =>
          Effect.flatMap(
            Effect.sync(() => world.destinations.get(id)),
            (place) => (place === undefined ? Effect.fail(gone) : Effect.succeed({ place, version: 1 }))
          ),
        at: (_, id) => Effect.suspend(() => Effect.succeed(world.destinations.get(id)!))
      })
    ),
    Layer.provideMerge(PostgresServers.layer),
    Layer.provideMerge(Layer.mergeAll(PostgresBinaries.layer, KeyRing.layer)),
    Layer.provideMerge(copyingHost),
    Layer.provideMerge(AppConfig.layerWith({ dataDir: world.dataDir })),
    Layer.provideMerge(Db.layer({ url: world.storeUrl, engineConnections: 6, apiConnections: 2 })),
    Layer.provideMerge(Layer.effect(BackupOptions, quick(values)))
  )

const aStore = Effect.gen(function* () {
  const storeUrl = yield* migratedDatabase
  const store = yield* Effect.acquireRelease(
    Effect.sync(() =>
      postgres(Redacted.value(storeUrl), {
        max: 1,
        connect_timeout: 60,
        onnotice: () => {}
      })
    ),
    (sql) => Effect.promise(() => sql.end({ timeout: 1 }))
  )
  return { storeUrl, store }
})

export const backupWorld = Effect.gen(function* () {
  const base = yield* databaseWorld
  const world: BackupWorld = {
    ...base,
    ...(yield* aStore),
    destinations: new Map(),
    databases: new Map()
  }
  return world
})

/** Without database servers: what only the store and the repository take part in. */
export const storeWorld = Effect.gen(function* () {
  const at = yield* aStore
  const dataDir = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-backups-"))),
    (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 10 }))
  )
  return { dataDir, ...at, destinations: new Map<string, Place>() }
})
export type StoreWorld = Effect.Success<typeof storeWorld>

/** A statement on the store, as its owner. */
export const onStore = (world: StoreWorld, text: string) =>
  Effect.promise(async () => [...(await world.store.unsafe(text))])

/** A database that is ready, known to the store, with this policy. */
export const readyDatabase = Effect.fnUntraced(function* (
  world: BackupWorld,
  policy: Partial<BackupPolicy> = {}
) {
  const resource = makeDatabase(world, { backup: { ...defaultBackupPolicy, ...policy } })
  yield* settle(world, resource)
  yield* onStore(
    world,
    `insert into organization (id, name, slug, billing_status)
       values ('${resource.orgId}', 'one', 'o-${resource.orgId.slice(0, 20)}', 'active');
     insert into resource (org_id, uid, kind, name, spec, managed_by)
       select '${resource.orgId}', id::uuid, 'BackupDestination', id, '{}', 'api'
       from unnest('{${(policy.destinationIds ?? []).join(",")}}'::text[]) as t(id);
     insert into resource (org_id, uid, kind, project_id, environment, name, spec, phase, managed_by)
       values ('${resource.orgId}', '${resource.uid}', 'Database', '${resource.projectId}', 'production', 'main',
         '${JSON.stringify(resource.spec)}', 'ready', 'api')`
  )
  world.databases.set(resource.uid, resource)
  return resource
})

/** Reconciles until it is ready. */
export const settle = (world: BackupWorld, resource: DatabaseResource) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { registrations } = Context.get(yield* Layer.build(databaseReconciler(world)), Registry)
      const registration = registrations.get("Database")
      if (registration === undefined) return yield* Effect.die("no reconciler")
      yield* reachGoal(registration.reconciler, resource, 240_000)
    })
  )

/** The loops of one process; closing is an orderly stop. */
export const startLoops = Effect.fnUntraced(function* (
  world: Omit<BackupWorld, "store">,
  values: Partial<BackupOptions> = {}
) {
  const scope = yield* Scope.make()
  const context = yield* Layer.buildWithScope(
    runner.layer.pipe(Layer.provideMerge(services(world, values))),
    scope
  )
  const stop = Scope.close(scope, Exit.void)
  yield* Effect.addFinalizer(() => stop)
  return { context, stop }
})

/** A connection to the database as the control user: over the socket, into the application's database. */
export const connect = (world: BackupWorld, port: number, socketDir = path.join(world.dataDir, "run")) =>
  postgres({
    host: socketDir,
    port,
    database: appDatabase,
    username: controlUser,
    max: 4,
    connect_timeout: 60,
    onnotice: () => {},
    fetch_types: false
  })

export const portOf = (world: BackupWorld, { uid }: { readonly uid: string }): number =>
  Number(JSON.parse(fs.readFileSync(path.join(folderOf(world, { uid }), "server.json"), "utf8")).port)

export const destination = (world: StoreWorld) => {
  const id = uuid()
  const dir = path.join(world.dataDir, `bucket-${id}`)
  world.destinations.set(id, localPlace(dir))
  return { id, dir }
}

/** As long as this goes on no part of a backup can be recorded. Answers what ends it. */
export const unrecorded = Effect.fnUntraced(function* (world: BackupWorld) {
  yield* onStore(
    world,
    `create function held() returns trigger language plpgsql as
       $$ begin perform pg_advisory_xact_lock(1); return new; end $$;
     create trigger held before insert on backup_object for each row when (new.backup_id is not null)
       execute function held()`
  )
  const sql = postgres(Redacted.value(world.storeUrl), { max: 1, max_lifetime: null, onnotice: () => {} })
  yield* Effect.promise(() => sql`select pg_advisory_lock(1)`)
  const end = Effect.promise(() => sql.end())
  yield* Effect.addFinalizer(() => end)
  return end
})
