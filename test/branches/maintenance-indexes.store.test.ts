/** What is asked every second is answered from indexes: the table of resources is not read as a whole. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { makeMaintenanceRows } from "#src/branches/maintenance-rows.ts"
import { Db } from "#src/store/Db.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

/** Of 50,000 resources 2,000 are branches, and something is to be done with 30 of them. */
const load = (org: string) => `
  insert into organization (id, name, slug, billing_status) values ('${org}', 'one', 'o-one', 'active');
  alter table resource disable trigger user;
  insert into resource (org_id, uid, kind, name, spec, phase, managed_by)
    select '${org}', gen_random_uuid(), 'Environment', 'e' || n, '{}', 'ready', 'api' from generate_series(1, 48000) n;
  insert into resource (org_id, uid, kind, name, spec, phase, status, managed_by, updated_at)
    select '${org}', gen_random_uuid(), 'DatabaseBranch', 'b' || n,
      case when n <= 10 then '{"promoteWhenReady": true}' when n <= 20 then '{"promotedTo": "x"}' else '{}' end::jsonb,
      'ready', case when n between 11 and 20 then '{"state": "ready", "failure": {"code": "data_lost"}}'
        when n between 21 and 30 then '{"state": "expired"}' else '{"state": "ready"}' end::jsonb,
      'api', now() - interval '30 days'
    from generate_series(1, 2000) n;
  alter table resource enable trigger user;`

it.live("branches that are due are found without reading the others", () =>
  Effect.scoped(
    Effect.gen(function* () {
      const url = yield* migratedDatabase
      const owner = yield* Effect.acquireRelease(
        Effect.sync(() => postgres(Redacted.value(url), { max: 1, onnotice: () => {} })),
        (sql) => Effect.promise(() => sql.end())
      )
      const run = (text: string) => Effect.promise(() => owner.unsafe(text))
      yield* run(load(uuid()))
      yield* run("vacuum analyze resource")
      // Connections tell what they read when they end, and until then they are listed.
      const allEnded = eventually(
        "all others have told what they read",
        Effect.map(
          run(
            `select count(*)::int as n from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`
          ),
          ([row]) => row?.["n"] === 0
        )
      )
      yield* allEnded
      yield* run("select pg_stat_reset()")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const rows = yield* Effect.provideContext(
            makeMaintenanceRows,
            yield* Layer.build(Db.layer({ url }))
          )
          assert.isAtMost((yield* rows.nextIn) ?? 1, 0)
          const claimed = yield* rows.claim(40)
          assert.lengthOf(claimed, 30)
          yield* rows.succeeded(claimed[0]!)
        })
      )
      yield* allEnded
      yield* run("select pg_stat_clear_snapshot()")
      const [read] = yield* run(
        `select seq_tup_read::int as rows, idx_tup_fetch::int as fetched from pg_stat_user_tables
         where relname = 'resource'`
      )
      assert.strictEqual(read?.["rows"], 0)
      // A look at each index, twice, and at the rows that a lease refers to.
      assert.isBelow(read?.["fetched"], 500)
    })
  )
)
