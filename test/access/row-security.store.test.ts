import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"

layer(testDb(), { excludeTestServices: true })("row-level security", (it) => {
  it.effect("holds on every table that belongs to an organization, whoever adds it", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const tables = yield* sql<{
        readonly name: string
        readonly secured: boolean
        readonly policies: string
      }>`
        select c.relname as name, c.relrowsecurity as secured,
          (select string_agg(pg_get_expr(p.polqual, p.polrelid), ' ') from pg_policy p
            join pg_roles r on r.oid = any (p.polroles) where p.polrelid = c.oid and r.rolname = 'svc_api') as policies
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'org_id' and not a.attisdropped
        where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace order by 1`
      assert.isAbove(tables.length, 12)
      for (const { name, secured, policies } of tables) {
        assert.isTrue(secured, `${name} has no row-level security`)
        // Mail is promised by requests and never read by them.
        if (name !== "mail_outbox") assert.include(policies ?? "", "svc_current_org", name)
      }
    })
  )

  it.effect("a request sees the rows of the organization it named, and none when it named none", () =>
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const [mine, other] = [yield* makeOrganization(), yield* makeOrganization()]
      for (const { id } of [mine, other]) {
        const [user, digest] = [randomUUIDv7(), Buffer.from(id)]
        yield* sql`insert into account (id, email, name) values (${user}, ${`${user}@example.test`}, 'U')`
        yield* sql`insert into member (org_id, id, user_id, role) values (${id}, ${user}, ${user}, 'owner')`
        yield* sql`insert into invitation (org_id, id, email, role, digest, invited_by, expires_at)
          values (${id}, ${user}, 'a@example.test', 'member', ${digest}, ${user}, now())`
        yield* sql`insert into api_key (org_id, id, name, key_prefix, digest, role)
          values (${id}, ${user}, 'k', 'svc_', ${digest}, 'member')`
        yield* sql`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
          values (${id}, ${user}, ${user}, 'c', 'C', 'api', 'member', '{}')`
        yield* sql`insert into audit_log (org_id, principal, credential, operation, request_id, outcome)
          values (${id}, 'p', 'key', 'o', 'r', 200)`
      }
      for (const table of ["member", "invitation", "api_key", "agent_grant", "audit_log", "svc_members()"]) {
        const from = api.literal(table)
        assert.strictEqual((yield* api`select 1 from ${from}`).length, 0, table)
        for (const { id } of [mine, other]) {
          const seen = yield* api`
            select 1 from ${from} where (select set_config('svc.org_id', ${id}, true)) is not null`
          assert.strictEqual(seen.length, 1, table)
        }
        // It changes nothing elsewhere either.
        if (table === "svc_members()") continue
        yield* api`delete from ${from} where org_id = ${other.id}::uuid
          and (select set_config('svc.org_id', ${mine.id}, true)) is not null`
        const left = yield* sql`select from ${from} where org_id = ${other.id}`
        assert.strictEqual(left.length, 1, table)
      }
      for (const table of [
        "account",
        "session",
        "password",
        "platform_secret",
        "organization_slug",
        "mail_outbox"
      ]) {
        const read = yield* Effect.exit(api`select 1 from ${api.literal(table)}`)
        assert.isTrue(read._tag === "Failure", `${table} can be read by requests`)
      }
      const smuggled = yield* Effect.exit(api`
        insert into api_key (org_id, id, name, key_prefix, digest, role)
        select ${other.id}::uuid, gen_random_uuid(), 'k', 'svc_', 'x', 'admin'
        where (select set_config('svc.org_id', ${mine.id}, true)) is not null`)
      assert.strictEqual(smuggled._tag, "Failure")
    })
  )
})
