/** What the loops ask every few seconds is answered from indexes: no large table is read as a whole. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { managedDatabases } from "#src/backups/Databases.ts"
import { makeCopies } from "#src/backups/destinations/copies.ts"
import { makeHousekeeping } from "#src/backups/housekeeping.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { makeSchedule } from "#src/backups/schedule.ts"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { onStore, services, storeWorld } from "./world.ts"

/** Of 100,000 resources 300 are databases, with 60,000 segments, 40 backups each, and a destination that takes nothing. */
const load = (org: string, bucket: string) => `
  insert into organization (id, name, slug, billing_status) values ('${org}', 'one', 'o-one', 'active');
  insert into resource (org_id, uid, kind, name, spec, phase, managed_by)
    values ('${org}', '${bucket}', 'BackupDestination', 'bucket', '{}', 'ready', 'api');
  alter table resource disable trigger user;
  insert into resource (org_id, uid, kind, name, spec, phase, managed_by)
    select '${org}', gen_random_uuid(), 'Environment', 'e' || n, '{}', 'ready', 'api' from generate_series(1, 99700) n;
  insert into resource (org_id, uid, kind, name, spec, phase, managed_by)
    select '${org}', gen_random_uuid(), 'Database', 'd' || n, jsonb_build_object('sku', 'db-n1', 'region', 'local',
      'backup', jsonb_build_object('destinationIds', jsonb_build_array('${bucket}'))), 'ready', 'api'
    from generate_series(1, 300) n;
  alter table resource enable trigger user;
  insert into backup_lineage (org_id, lineage, database_uid, key_id, sealed)
    select org_id, uid, uid, 'k', '' from resource where kind = 'Database';
  insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256)
    select l.org_id, l.lineage, 'wal/0000000100000000' || lpad(upper(to_hex(n)), 8, '0'), l.lineage || '/' || n, 1, 1, '', ''
    from backup_lineage l, generate_series(1, 200) n;
  insert into backup_copy (org_id, lineage, name, key, destination_id, due_at)
    select org_id, lineage, name, key, '${bucket}', now() from backup_object;
  insert into backup_job (org_id, id, kind, database_uid, lineage, reason, status, finished_at, due_at, timeline, consistent_at)
    select l.org_id, gen_random_uuid(), 'backup', l.lineage, l.lineage, 'schedule', 'succeeded', now(), null, 1,
      now() - n * interval '1 minute'
    from backup_lineage l, generate_series(1, 40) n;
  insert into backup_destination_pause (org_id, destination_id, removing, failures, error, due_at)
    values ('${org}', '${bucket}', false, 9, 'no', now() + interval '1 hour');
  update backup_lineage set trouble = 'ArchivingBehind'
    where lineage in (select lineage from backup_lineage limit 3);`

describe("what backups ask the store again and again", { timeout: 600_000 }, () => {
  it.live("is answered from indexes among a hundred thousand resources", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        yield* onStore(world, load(uuid(), uuid()))
        for (const table of ["resource", "backup_lineage", "backup_object", "backup_copy", "backup_job"]) {
          yield* onStore(world, `vacuum analyze ${table}`)
        }
        // Connections tell what they read when they end, and until then they are listed.
        const allEnded = eventually(
          "all others have told what they read",
          Effect.map(
            onStore(
              world,
              `select count(*)::int as n from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`
            ),
            ([row]) => row?.["n"] === 0
          )
        )
        yield* allEnded
        yield* onStore(world, "select pg_stat_reset()")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const context = yield* Layer.build(services(world))
            yield* Effect.gen(function* () {
              const [jobs, ledger] = [yield* Jobs, yield* Ledger]
              const copies = yield* makeCopies
              const housekeeping = yield* makeHousekeeping
              const databases = yield* managedDatabases
              assert.lengthOf(databases, 300)
              assert.strictEqual((yield* ledger.troubled).size, 3)
              assert.lengthOf(yield* copies.failing, 300)
              const { loop } = copies
              yield* loop.claim({ most: 8, orgs: makeFairShare(8).rooms(), running: [] })
              yield* loop.nextIn
              yield* jobs.halfMade
              yield* ledger.flushWanted
              yield* (yield* makeSchedule)(databases)
              yield* housekeeping.departed
            }).pipe(Effect.provide(context))
          })
        )
        yield* allEnded
        const read = yield* onStore(
          world,
          `select relname, seq_tup_read::int as rows, idx_tup_fetch::int as fetched from pg_stat_user_tables
           where relname in ('resource', 'backup_object', 'backup_copy', 'backup_job') order by relname`
        )
        assert.lengthOf(read, 4)
        assert.isAbove(
          read.reduce((sum, row) => sum + Number(row["fetched"]), 0),
          0
        )
        assert.deepStrictEqual(
          read.map((row) => `${row["relname"]}: ${row["rows"]}`),
          ["backup_copy: 0", "backup_job: 0", "backup_object: 0", "resource: 0"]
        )
      })
    )
  )
})
