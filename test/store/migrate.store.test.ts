import { randomUUID } from "node:crypto"
import { readdirSync } from "node:fs"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import { lineFault, toDisplayName } from "#schemas/display-text.ts"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import { emptyDatabase } from "#test/setup/database.ts"

const files = readdirSync(new URL("../../src/store/migrations/", import.meta.url)).sort()
const run = (url: Redacted.Redacted, ...statements: ReadonlyArray<string>) =>
  Effect.flatMap(PgClient.makeClient({ url }), (sql) =>
    Effect.forEach(statements, (text) => sql.unsafe(text))
  ).pipe(Effect.scoped, Effect.provide(Reactivity.layer))

it.live("several processes that start at once apply each migration once", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    const applied = yield* Effect.all([migrate(url), migrate(url), migrate(url)], {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(applied.flat().sort(), files)
    assert.deepStrictEqual(yield* migrate(url), [])
  })
)

it.live("a migration that was changed after it was applied stops the start and is named", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    yield* migrate(url)
    yield* run(url, "update schema_migration set digest = 'other' where name = '0001_core.sql'")
    const error = yield* Effect.flip(migrate(url))
    assert.include(error.message, "0001_core.sql")
  })
)

it.live("a login without the two roles is told what to grant; with them it needs to make tables only", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    yield* migrate(yield* emptyDatabase)
    const [name, password] = [`login_${randomUUID().slice(0, 8)}`, randomUUID()]
    yield* Effect.acquireRelease(run(url, `create role ${name} login password '${password}'`), () =>
      Effect.orDie(run(url, `grant ${name} to current_user`, `drop owned by ${name}`, `drop role ${name}`))
    )
    yield* run(url, `grant create on schema public to ${name}`)
    const asLogin = new URL(Redacted.value(url))
    asLogin.username = name
    asLogin.password = password
    const login = Redacted.make(asLogin.href)

    const error = yield* Effect.flip(migrate(login))
    assert.include(error.message, `grant svc_api to "${name}"`)
    yield* run(url, `grant svc_api, svc_engine to ${name}`)
    assert.deepStrictEqual(yield* migrate(login), files)
    const seen = yield* Effect.gen(function* () {
      const { api, engine } = yield* Db
      return [yield* api`select current_user as name`, yield* engine`select current_user as name`]
    }).pipe(Effect.provide(Db.layer({ url: login })))
    assert.deepStrictEqual(seen.flat(), [{ name: "svc_api" }, { name: "svc_engine" }])
  }).pipe(Effect.scoped)
)

it.live("what statuses told of data before there were facts becomes facts", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    yield* migrate(url)
    const rows: ReadonlyArray<readonly [string, string, string, object, object | null, object]> = [
      ["Database", "had-data", "failed", {}, { server: "PostgreSQL 18" }, { lineage: "UID" }],
      ["Database", "promoted", "ready", {}, { server: "PostgreSQL 18", lineage: "b" }, { lineage: "b" }],
      ["Database", "paused-away", "ready", { lineage: "b" }, null, { lineage: "b" }],
      ["Database", "never-made", "provisioning", {}, { server: "" }, {}],
      ["Database", "new", "pending", {}, null, {}],
      ["DatabaseBranch", "hydrated", "ready", {}, { hydrated: true }, { hydrated: true }],
      ["DatabaseBranch", "lost", "failed", {}, { failure: { code: "data_lost" } }, { hydrated: true }],
      ["DatabaseBranch", "expired", "ready", {}, { hydrated: false, state: "expired" }, {}],
      ["Cache", "kept", "updating", { persistence: "aof" }, { server: "redis 7" }, { persisted: true }],
      ["Cache", "in-memory", "ready", { persistence: "none" }, { server: "redis 7" }, {}],
      ["Cache", "never-made", "provisioning", { persistence: "aof" }, null, {}]
    ]
    const insert = (ord: number, [kind, name, phase, spec, status]: (typeof rows)[number]) => `
      insert into resource (org_id, uid, kind, name, phase, spec, status, generation, observed_generation, managed_by)
      values (gen_random_uuid(), '00000000-0000-7000-8000-${String(ord).padStart(12, "0")}', '${kind}', '${name}',
        '${phase}', '${JSON.stringify(spec)}', ${status === null ? "null" : `'${JSON.stringify(status)}'`}, 1, 1, 'api')`
    yield* run(
      url,
      "alter table resource drop column facts",
      "delete from schema_migration where name = '0018_facts.sql'",
      `do $script$ begin set local session_replication_role = replica; ${rows.map((row, ord) => insert(ord, row)).join(";")}; end $script$`
    )
    assert.deepStrictEqual(yield* migrate(url), ["0018_facts.sql"])
    const [found] = yield* run(url, "select uid, kind, name, facts from resource order by uid")
    assert.deepStrictEqual(
      (found ?? []).map((row) => {
        const { uid, kind, name, facts } = row as Record<string, unknown>
        return [kind, name, JSON.parse(JSON.stringify(facts).replace(String(uid), "UID"))]
      }),
      rows.map(([kind, name, , , , facts]) => [kind, name, facts])
    )
  }).pipe(Effect.scoped)
)

it.live(
  "names of projects that the rules for lines of text refuse are cleaned, and nothing else changes",
  () =>
    Effect.gen(function* () {
      const url = yield* emptyDatabase
      yield* migrate(url)
      const blanks = "\t\n\v\f\r \u00a0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
      const names: ReadonlyArray<readonly [before: string, after: string]> = [
        ["Zoë's  Café 👩‍👩‍👧\u200b", "Zoë's  Café 👩‍👩‍👧\u200b"],
        ["a\nb\u001b[31m\u007f\u0085\u009f.", "a b [31m   ."],
        ["a\u2028b\u2029c", "a b c"],
        ["\u200finvoice\u202e\u202a\u2066\u2069\u061c\u200efdp", "invoicefdp"],
        [`${blanks}a${blanks}b${blanks}`, `a${toDisplayName(`a${blanks}b`).slice(1, -1)}b`],
        ["\u202e \u202c", "slug-6"],
        ["\n", "slug-7"],
        ["", "slug-8"]
      ]
      const uid = (ord: number) => `00000000-0000-7000-8000-${String(ord).padStart(12, "0")}`
      const insert = (kind: string, ord: number, name: string) => `
      insert into resource (org_id, uid, kind, name, phase, spec, generation, observed_generation, managed_by)
      values ('${uid(0)}', '${uid(ord)}', '${kind}', 'slug-${ord}', 'ready',
        convert_from('\\x${Buffer.from(JSON.stringify({ name, region: " \n" })).toString("hex")}', 'UTF8')::jsonb, 1, 1, 'api')`
      const rest = "select uid, to_jsonb(r) - 'spec' as others from resource r order by uid"
      const statements = [
        ...names.map(([name], at) => insert("Project", at + 1, name)),
        insert("Queue", 99, " a\n")
      ]
      yield* run(
        url,
        "delete from schema_migration where name = '0020_display_names.sql'",
        `do $script$ begin set local session_replication_role = replica; ${statements.join(";")}; end $script$`
      )
      const [before] = yield* run(url, rest)
      assert.deepStrictEqual(yield* migrate(url), ["0020_display_names.sql"])
      const [found, after] = yield* run(url, "select spec from resource order by uid", rest)
      assert.deepStrictEqual(
        found,
        [...names.map(([, name]) => name), " a\n"].map((name) => ({ spec: { name, region: " \n" } }))
      )
      assert.deepStrictEqual(after, before)
      for (const [, name] of names) assert.isUndefined(lineFault(name))
    }).pipe(Effect.scoped)
)
