/** Every table is owned by somebody who says what holds for it, and what is said is so. */
import { randomUUIDv7 } from "node:crypto"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Reactivity from "effect/reactivity/Reactivity"
import { tableRules } from "#src/features.ts"
import { tidy } from "#src/loops/Housekeeping.ts"
import { round } from "#src/organizations/OrganizationFinalizer.ts"
import { Db } from "#src/store/Db.ts"
import { TableRules } from "#src/store/table-rules.ts"
import { migratedDatabase, testDb } from "#test/setup/database.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"

layer(Layer.mergeAll(testDb(), tableRules), { excludeTestServices: true })("table rules", (it) => {
  it.effect("there is one for each table, and none for anything else", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const tables = yield* sql<{ readonly name: string }>`
        select relname as name from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition`
      assert.deepStrictEqual(
        (yield* TableRules).map(({ name }) => name).sort(),
        tables.map(({ name }) => name).sort()
      )
    })
  )

  it.effect("what becomes of an organization's rows is what the table can do", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const columns = yield* sql<{ readonly table: string; readonly column: string }>`
        select table_name as "table", column_name as "column" from information_schema.columns
        where table_schema = 'public'`
      const has = (table: string, column: string) =>
        columns.some((one) => one.table === table && one.column === column)
      const references = yield* sql<{ readonly from: string; readonly to: string }>`
        select conrelid::regclass::text as "from", confrelid::regclass::text as "to"
        from pg_constraint where contype = 'f' and confdeltype = 'c'`
      const goes = (table: string): boolean =>
        table === "organization" ||
        table === "resource" ||
        references.some(({ from, to }) => from === table && goes(to))
      for (const { name, onOrganizationDeletion: rule } of yield* TableRules) {
        const action = typeof rule === "string" ? rule : rule.action
        assert.strictEqual(has(name, "org_id"), action !== "none", name)
        if (action === "cascade" || action === "revoke") assert.isTrue(goes(name), `${name} stays`)
        if (action === "keep") assert.isFalse(goes(name), `${name} is not kept`)
        if (action === "revoke") assert.isTrue(has(name, "revoked_at"), name)
      }
    })
  )

  it.effect("rows go at their age and not before, and what an expression refers to is there", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const rules = yield* TableRules
      const aged = rules.flatMap(({ name, retention }) =>
        retention === undefined ? [] : [{ name, ...retention }]
      )
      assert.isAbove(aged.length, 10)
      for (const { name, column, age, onlyIf } of aged) {
        yield* sql.unsafe(`explain select from ${name} t
          where t.${column} < now() - interval '${age}' ${onlyIf === undefined ? "" : `and ${onlyIf}`}`)
      }
      const { id } = yield* makeOrganization()
      yield* sql`insert into rate_limit (bucket, tokens, updated_at) values
        ('young', 1, now() - interval '59 minutes'), ('old', 1, now() - interval '61 minutes')`
      yield* sql`insert into pause (org_id, id, scope, target, reason, paused_by, until) values
        (${id}, ${randomUUIDv7()}, 'kind', 'Cache', 'over', 'p', now() - interval '1 second'),
        (${id}, ${randomUUIDv7()}, 'kind', 'Queue', 'lasting', 'p', now() + interval '1 hour'),
        (${id}, ${randomUUIDv7()}, 'kind', 'Cron', 'for good', 'p', null)`
      yield* tidy
      assert.deepStrictEqual(yield* sql`select bucket from rate_limit`, [{ bucket: "young" }])
      assert.deepStrictEqual(yield* sql`select reason from pause order by 1`, [
        { reason: "for good" },
        { reason: "lasting" }
      ])
    })
  )
})

it.live("svc_tenant_table keeps the rows of an organization from the requests of another", () =>
  Effect.gen(function* () {
    const url = yield* migratedDatabase
    const owner = yield* PgClient.makeClient({ url })
    yield* owner`create table gadget (org_id uuid not null, name text not null)`
    yield* owner`create table reading (org_id uuid not null, name text not null)`
    yield* owner`select svc_tenant_table('gadget'), svc_tenant_table('reading', false)`
    const { api, engine } = yield* Effect.map(Layer.build(Db.layer({ url })), (context) =>
      Context.get(context, Db)
    )
    const [mine, other] = [randomUUIDv7(), randomUUIDv7()]
    for (const table of ["gadget", "reading"]) {
      for (const org of [mine, other])
        yield* engine`insert into ${engine(table)} values (${org}::uuid, ${org})`
      assert.lengthOf(yield* engine`select from ${engine(table)}`, 2)
      assert.lengthOf(yield* api`select from ${api(table)}`, 0)
      const seen = yield* api`select name from ${api(table)}
        where (select set_config('svc.org_id', ${mine}, true)) is not null`
      assert.deepStrictEqual(seen, [{ name: mine }])
    }
    const write = (table: string, org: string) =>
      Effect.exit(api`insert into ${api(table)} select ${org}::uuid, 'new'
        where (select set_config('svc.org_id', ${mine}, true)) is not null`)
    assert.deepStrictEqual(
      [yield* write("gadget", mine), yield* write("gadget", other), yield* write("reading", mine)].map(
        ({ _tag }) => _tag
      ),
      ["Success", "Failure", "Failure"]
    )
  }).pipe(Effect.provide(Reactivity.layer))
)

/** A value that a column of the type takes. */
const valueFor: Readonly<Record<string, string>> = {
  uuid: "gen_random_uuid()",
  text: "gen_random_uuid()::text",
  int2: "1",
  int4: "1",
  int8: "1",
  float8: "1",
  numeric: "1",
  bool: "false",
  timestamptz: "now()",
  jsonb: "'{}'",
  bytea: "'\\x00'",
  date: "'2026-11-01'",
  xid8: "'1'",
  _uuid: "'{}'",
  _text: "'{}'"
}

it.live("what is drained is gone with its organization, from every such table, and nobody else's", () =>
  Effect.gen(function* () {
    const url = yield* migratedDatabase
    const owner = yield* PgClient.makeClient({ url })
    const columns = yield* owner<{ readonly table: string; readonly column: string; readonly type: string }>`
      select c.table_name as "table", c.column_name as "column", c.udt_name as type
      from information_schema.columns c
      join information_schema.tables t on t.table_schema = c.table_schema and t.table_name = c.table_name
      where c.table_schema = 'public' and t.table_type = 'BASE TABLE' and c.is_nullable = 'NO'
        and c.column_default is null and c.is_identity = 'NO' and c.is_generated = 'NEVER'`
    const rules = Context.get(yield* Layer.build(tableRules), TableRules)
    const drained = rules.filter(
      ({ onOrganizationDeletion: rule }) => typeof rule !== "string" && rule.action === "drain"
    )
    assert.isAbove(drained.length, 8)
    const [leaving, staying] = [randomUUIDv7(), randomUUIDv7()]
    // One row of each organization in each table, whatever rows really hold.
    yield* owner`set session_replication_role = replica`
    const checks = yield* owner<{ readonly table: string; readonly name: string }>`
      select conrelid::regclass::text as "table", conname as name from pg_constraint
      where contype = 'c' and connamespace = 'public'::regnamespace`
    for (const { table, name } of checks)
      yield* owner.unsafe(`alter table ${table} drop constraint "${name}"`)
    for (const org of [leaving, staying]) {
      yield* owner`insert into organization (id, name, slug, billing_status, deletion_requested_at)
        values (${org}, ${org}, ${org}, 'active', ${org === leaving ? new Date() : null})`
      for (const { name } of drained) {
        const own = columns.filter(({ table }) => table === name)
        const values = own.map(({ column, type }) => {
          if (column === "org_id") return `'${org}'`
          const value = valueFor[type]
          if (value === undefined) assert.fail(`${name}.${column} is of the type ${type}`)
          return value
        })
        yield* owner.unsafe(
          `insert into ${name} (${own.map(({ column }) => `"${column}"`).join()}) values (${values.join()})`
        )
      }
    }
    yield* owner`update resource set deleted_at = now()`
    yield* round.pipe(Effect.provide([Db.layer({ url }), Layer.succeed(TableRules, rules)]))
    for (const { name } of drained) {
      const left = yield* owner.unsafe(`select org_id from ${name}`)
      assert.deepStrictEqual(left, [{ org_id: staying }], name)
    }
  }).pipe(Effect.provide(Reactivity.layer), Effect.scoped)
)
