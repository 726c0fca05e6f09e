import * as os from "node:os"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import { WalRanges } from "#src/backups/archive/WalRanges.ts"
import { makeHousekeeping } from "#src/backups/housekeeping.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { localPlace } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { AppConfig } from "#src/config.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

const removed: Array<string> = []
const local = localPlace("/nowhere")
const stack = Layer.mergeAll(
  Ledger.layer,
  Jobs.layer,
  WalRanges.layer,
  Layer.mock(Repository, {
    local: { ...local, remove: (keys) => Effect.sync(() => void removed.push(...keys)) }
  }),
  AppConfig.layerWith({ dataDir: os.tmpdir() })
).pipe(Layer.provide(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

layer(stack, { excludeTestServices: true, timeout: "5 minutes" })("pruning", (it) => {
  it.effect(
    "of a long log goes what is older than promised, page by page, and the ranges of kept backups stay",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const ledger = yield* Ledger
        const ref = { orgId: uuid(), lineage: uuid() }
        yield* ledger.ensure(ref, ref.lineage)
        // A segment each ten minutes for thirty days, and a backup each day.
        const count = 30 * 144
        const place = (n: string) =>
          sql.literal(`upper(lpad(to_hex((${n}) / 1024), 8, '0') || lpad(to_hex((${n}) % 1024), 8, '0'))`)
        yield* sql`
        insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256,
          finished_at)
        select ${ref.orgId}::uuid, ${ref.lineage}::uuid, 'wal/00000001' || ${place("n")}, n::text, 1, 1, '', '',
          now() - (${count} - n) * interval '10 minutes'
        from generate_series(0, ${count - 1}::int) n`
        yield* sql`
        insert into backup_job (org_id, id, kind, database_uid, lineage, reason, status, due_at, finished_at,
          start_segment, stop_segment, timeline, consistent_at)
        select ${ref.orgId}::uuid, gen_random_uuid(), 'backup', ${ref.lineage}::uuid, ${ref.lineage}::uuid, 'schedule',
          'succeeded', null, now(), '00000001' || ${place("n * 144")}, '00000001' || ${place("n * 144 + 1")}, 1,
          now() - (${count} - n * 144 - 1.5) * interval '10 minutes'
        from generate_series(0, 29) n`
        const database = {
          orgId: ref.orgId,
          uid: ref.lineage,
          lineage: ref.lineage,
          policy: { ...defaultBackupPolicy, dailyDays: 0, weeklyWeeks: 3, monthlyMonths: 0 },
          destinationIds: [],
          ready: true
        }
        const { retention } = yield* makeHousekeeping
        yield* retention([database])
        const left = yield* sql<{ readonly n: number }>`
        select key::int as n from backup_object where lineage = ${ref.lineage} order by 1`
        const bases = yield* sql<{ readonly first: string; readonly stop: string }>`
        select start_segment as first, stop_segment as stop from backup_job where lineage = ${ref.lineage}
        order by consistent_at`
        const numberOf = (name: string) =>
          Number.parseInt(name.slice(8, 16), 16) * 1_024 + Number.parseInt(name.slice(16), 16)
        // All of it from the last backup that is a week old, and of older backups what they need themselves.
        const from = 22 * 144
        const own = bases
          .map(({ first }) => numberOf(first))
          .filter((first) => first < from)
          .flatMap((first) => [first, first + 1])
        const whole = Array.from({ length: count - from }, (_, n) => from + n)
        assert.deepStrictEqual(
          left.map(({ n }) => n),
          [...own, ...whole]
        )
        assert.isAbove(own.length, 0)
        assert.lengthOf(removed, count - own.length - whole.length)
        assert.isAbove(removed.length, 2_000, "more than two pages")
        yield* retention([database])
        assert.lengthOf(removed, count - own.length - whole.length)
      })
  )
})
