/** Backups are made, and copied, by processes of the region that the database is in: its data folder is there. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { managedDatabases } from "#src/backups/Databases.ts"
import { makeCopies } from "#src/backups/destinations/copies.ts"
import { Remotes } from "#src/backups/destinations/Remotes.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { localPlace } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { ServedRegion } from "#src/engine/options.ts"
import { leased } from "#src/loops/leased.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const Store = Layer.merge(Resources.layer, Ledger.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

/** Ids of a database in each of two regions, and of one that the store knows no longer. */
const databases = Effect.gen(function* () {
  const { id: orgId } = yield* makeOrganization()
  const resources = yield* Resources
  const database = Effect.fnUntraced(function* (region: string) {
    const place = yield* makeProject(orgId, `of-${region}`)
    const change = { ...cacheChange(place, "main"), kind: "Database", spec: { sku: "db-n1", region } }
    yield* resources.write(orgId, [change], actor)
    return change.uid
  })
  return { orgId, east: yield* database("east"), west: yield* database("west"), forgotten: uuid() }
})

it.live("a process makes backups of the databases of its region", () =>
  Effect.gen(function* () {
    const { orgId, east, west, forgotten } = yield* databases
    const inRegion = (region: string) => Layer.succeed(ServedRegion, region)
    const jobsOf = (region: string) =>
      Effect.provide(Jobs, Layer.fresh(Jobs.layer).pipe(Layer.provide(inRegion(region))))
    const [here, there] = [yield* jobsOf("east"), yield* jobsOf("west")]
    for (const [region, uid] of Object.entries({ east, west })) {
      const managed = yield* Effect.provideService(managedDatabases, ServedRegion, region)
      assert.deepStrictEqual(
        managed.filter((one) => one.orgId === orgId).map((one) => one.uid),
        [uid]
      )
    }
    const queue = (databaseUid: string) =>
      here.queue({
        orgId,
        kind: "backup",
        databaseUid,
        lineage: databaseUid,
        backupId: null,
        reason: "request"
      })
    yield* queue(west)
    assert.isUndefined(yield* here.nextIn)
    assert.deepStrictEqual(yield* here.claim(10, 60), [])
    assert.isAtMost((yield* there.nextIn) ?? Number.POSITIVE_INFINITY, 0)
    const claimed = yield* there.claim(10, 60)
    assert.deepStrictEqual(
      claimed.map(({ databaseUid }) => databaseUid),
      [west]
    )
    yield* queue(forgotten)
    yield* queue(east)
    assert.sameMembers(
      (yield* here.claim(10, 60)).map(({ databaseUid }) => databaseUid),
      [east, forgotten]
    )
  }).pipe(Effect.provide(Store))
)

it.live("a process brings copies of its region to destinations, and leaves the others where they are", () =>
  Effect.gen(function* () {
    const { orgId, east, west } = yield* databases
    const { engine: sql } = yield* Db
    const ledger = yield* Ledger
    const destination = uuid()
    const want = Effect.fnUntraced(function* (databaseUid: string) {
      yield* ledger.ensure({ orgId, lineage: databaseUid }, databaseUid)
      yield* sql`insert into backup_object
        (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256, finished_at)
        values (${orgId}::uuid, ${databaseUid}::uuid, 'wal/1', 'key', 1, 1, '', '', now())`
      yield* sql`insert into backup_copy (org_id, lineage, name, key, destination_id, due_at)
        values (${orgId}::uuid, ${databaseUid}::uuid, 'wal/1', 'key', ${destination}::uuid, now())`
    })
    const brought = sql<{ readonly lineage: string }>`
      select lineage from backup_copy where org_id = ${orgId}::uuid and stored_at is not null`.pipe(
      Effect.map((rows) => rows.map(({ lineage }) => lineage))
    )
    const place = { ...localPlace("/nowhere"), put: () => Effect.succeed({ bytes: 0 }) }
    /** The loop of a process of the region. Answers the copies that it sees waiting. */
    const begin = (region: string) =>
      Effect.flatMap(makeCopies, (copies) => Effect.as(leased(copies.loop), copies.loop.nextIn)).pipe(
        Effect.provideService(ServedRegion, region),
        Effect.provide(
          Layer.merge(
            Layer.mock(Repository, { local: place }),
            Layer.mock(Remotes, { current: () => Effect.succeed({ place, version: 1 }) })
          )
        )
      )
    yield* want(west)
    yield* want(east)
    const nextInEast = yield* begin("east")
    yield* eventually("the copy of the east is there", brought, (there) => there.length > 0)
    // What is due in the west is nothing that it waits for.
    assert.isUndefined(yield* nextInEast)
    assert.deepStrictEqual(yield* brought, [east])
    yield* begin("west")
    yield* eventually("the copy of the west is there", brought, (there) => there.length > 1)
  }).pipe(Effect.scoped, Effect.provide(Store))
)
