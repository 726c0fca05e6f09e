/** How migrations get on with processes that work meanwhile, and with starts that are cut off. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Reactivity from "effect/reactivity/Reactivity"
import { migrate } from "#src/store/migrate.ts"
import { emptyDatabase } from "#test/setup/database.ts"
import { eventually } from "#test/setup/wait.ts"

/** An empty database, and migrations of the test's own. */
const setting = Effect.gen(function* () {
  const url = yield* emptyDatabase
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-migrations-"))),
    (made) => Effect.sync(() => fs.rmSync(made, { recursive: true }))
  )
  const write = (files: Readonly<Record<string, string>>) => {
    for (const [name, script] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), script)
  }
  const connect = PgClient.makeClient({ url })
  const sql = yield* connect
  /** The one that is at it waits for a lock. */
  const stuck = eventually(
    "a migration waits for a lock",
    sql`select from pg_stat_activity where datname = current_database() and application_name = 'svc-migrate'
      and wait_event_type = 'Lock'`,
    (rows) => rows.length > 0
  )
  const applied = Effect.map(
    sql<{ readonly name: string }>`select name from schema_migration order by name`,
    (rows) => rows.map(({ name }) => name)
  )
  const run = (lockMs = 5_000) => migrate(url, { folder: pathToFileURL(`${folder}/`), lockMs })
  return { write, connect, sql, stuck, applied, run }
})

const live = <A, E>(name: string, body: Effect.Effect<A, E, Effect.Services<typeof setting>>) =>
  it.live(name, () => body.pipe(Effect.scoped, Effect.provide(Reactivity.layer)))

const plain = { "0001_one.sql": "create table one (id int);", "0002_two.sql": "create table two (id int);" }

live(
  "readers do not queue behind a migration that waits for a long transaction",
  Effect.gen(function* () {
    const { write, connect, sql, stuck, applied, run } = yield* setting
    write(plain)
    yield* run()
    write({ "0003_more.sql": "alter table one add column more int; create table three (id int);" })
    const holder = yield* connect
    yield* holder`begin`
    yield* holder`select from one`
    const migrating = yield* Effect.forkScoped(run(100))
    yield* stuck
    // The holder holds on: whoever queued behind the migration for good would wait until it lets go.
    for (let i = 0; i < 3; i++) yield* Effect.timeout(sql`select from one`, "1 minute")
    assert.deepStrictEqual(yield* applied, ["0001_one.sql", "0002_two.sql"])
    yield* holder`commit`
    assert.deepStrictEqual(yield* Fiber.join(migrating), ["0003_more.sql"])
  })
)

live(
  "a start that is cut off leaves whole files behind, and the next one goes on after them",
  Effect.gen(function* () {
    const { write, connect, sql, stuck, applied, run } = yield* setting
    write({ ...plain, "0003_more.sql": "create table three (id int); alter table held add column more int;" })
    yield* sql`create table held (id int)`
    const holder = yield* connect
    yield* holder`begin`
    yield* holder`select from held`
    const first = yield* Effect.forkScoped(Effect.flip(run(60_000)))
    yield* stuck
    yield* sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'svc-migrate'`
    assert.strictEqual((yield* Fiber.join(first))._tag, "StoreUnavailable")
    assert.deepStrictEqual(yield* applied, ["0001_one.sql", "0002_two.sql"])
    const [half] = yield* sql`select to_regclass('three') as name`
    assert.deepStrictEqual(half, { name: null })
    yield* holder`commit`
    assert.deepStrictEqual(yield* run(), ["0003_more.sql"])
  })
)

live(
  "an index is built beside writers by one process, while others that start wait for it",
  Effect.gen(function* () {
    const { write, connect, sql, run } = yield* setting
    write(plain)
    yield* run()
    write({
      "0003_index.sql": "-- concurrently\n-- A comment.\ncreate index concurrently one_id on one (id);\n"
    })
    const writer = yield* connect
    yield* writer`begin`
    yield* writer`insert into one values (1)`
    const starting = yield* Effect.forkScoped(Effect.all([run(), run(), run()], { concurrency: "unbounded" }))
    const building = sql`select from pg_index where indexrelid = to_regclass('one_id')`
    yield* eventually("the index is being built", building, (rows) => rows.length > 0)
    yield* Effect.timeout(sql`insert into one values (2)`, "1 minute")
    yield* writer`commit`
    assert.deepStrictEqual((yield* Fiber.join(starting)).flat(), ["0003_index.sql"])
    const [index] = yield* sql`select indisvalid as valid from pg_index where indexrelid = 'one_id'::regclass`
    assert.deepStrictEqual(index, { valid: true })
  })
)

live(
  "an index that a failed build left is dropped and built anew; a whole one is only written down",
  Effect.gen(function* () {
    const { write, sql, applied, run } = yield* setting
    write(plain)
    yield* run()
    yield* sql`insert into one values (1), (1)`
    write({ "0003_index.sql": "-- concurrently\ncreate unique index concurrently one_id on one (id)" })
    yield* Effect.flip(run())
    const valid = sql`select indisvalid as valid from pg_index where indexrelid = 'one_id'::regclass`
    assert.deepStrictEqual(yield* valid, [{ valid: false }])
    yield* sql`delete from one`
    assert.deepStrictEqual(yield* run(), ["0003_index.sql"])
    assert.deepStrictEqual(yield* valid, [{ valid: true }])
    // Killed between the build and the note of it.
    yield* sql`delete from schema_migration where name = '0003_index.sql'`
    const before = yield* sql`select 'one_id'::regclass::oid as oid`
    assert.deepStrictEqual(yield* run(), ["0003_index.sql"])
    assert.deepStrictEqual(yield* sql`select 'one_id'::regclass::oid as oid`, before)
    assert.lengthOf(yield* applied, 3)
  })
)
