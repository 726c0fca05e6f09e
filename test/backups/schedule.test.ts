import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { makeSchedule } from "#src/backups/schedule.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { onStore, services, storeWorld } from "./world.ts"

describe("what is due", { timeout: 300_000 }, () => {
  it.live(
    "is a backup for a destination that has the last one in part, as one that was named again has",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* storeWorld
          const [orgId, uid, base, bucket] = [uuid(), uuid(), uuid(), uuid()]
          const names = ["00000", "00001"].map((part) => `base/${base}/${part}`)
          yield* onStore(
            world,
            `insert into backup_job (org_id, id, kind, database_uid, lineage, reason, status, finished_at, due_at,
               timeline, consistent_at)
             values ('${orgId}', '${base}', 'backup', '${uid}', '${uid}', 'first', 'succeeded', now(), null, 1, now());
           insert into backup_object (org_id, lineage, name, key, backup_id, plain_bytes, stored_bytes, plain_sha256,
               stored_sha256)
             select '${orgId}', '${uid}', name, name, '${base}', 1, 1, '', '' from unnest('{${names.join()}}'::text[]) n(name);
           insert into backup_copy (org_id, lineage, name, key, destination_id, version, stored_at)
             select org_id, lineage, name, key, '${bucket}', 1, now() from backup_object`
          )
          const context = yield* Layer.build(services(world))
          const schedule = yield* Effect.provide(makeSchedule, context)
          const database = {
            orgId,
            uid,
            lineage: uid,
            policy: defaultBackupPolicy,
            destinationIds: [bucket],
            ready: true
          }
          const asked = Effect.map(
            onStore(world, "select reason from backup_job where finished_at is null and kind = 'backup'"),
            (rows) => rows.map(({ reason }) => reason)
          )
          yield* schedule([database])
          assert.deepStrictEqual(yield* asked, [])
          yield* onStore(world, `delete from backup_copy where name = '${names[1]}'`)
          yield* schedule([database])
          assert.deepStrictEqual(yield* asked, ["destination"])
        })
      )
  )

  it.live(
    "is asked for once for each history: what is open from before the data was replaced is not it",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* storeWorld
          const context = yield* Layer.build(services(world))
          const jobs = Context.get(context, Jobs)
          const [orgId, uid, next] = [uuid(), uuid(), uuid()]
          const ask = (lineage: string) =>
            Effect.map(
              jobs.queue({
                orgId,
                kind: "backup",
                databaseUid: uid,
                lineage,
                backupId: null,
                reason: "request"
              }),
              ({ id }) => id
            )
          const before = yield* ask(uid)
          const after = yield* ask(next)
          assert.notStrictEqual(after, before)
          assert.strictEqual(yield* ask(next), after)
          assert.strictEqual(yield* ask(uid), before)
          const schedule = yield* Effect.provide(makeSchedule, context)
          const replaced = { uid: uuid(), orgId }
          yield* jobs.queue({
            orgId,
            kind: "backup",
            databaseUid: replaced.uid,
            lineage: replaced.uid,
            backupId: null,
            reason: "schedule"
          })
          const lineage = uuid()
          yield* schedule([
            { ...replaced, lineage, policy: defaultBackupPolicy, destinationIds: [], ready: true }
          ])
          const open = yield* onStore(world, `select reason from backup_job where lineage = '${lineage}'`)
          assert.deepStrictEqual(
            open.map(({ reason }) => reason),
            ["first"]
          )
        })
      )
  )

  it.live("is the proof that was asked for with a backup, once no other drill goes on", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const context = yield* Layer.build(services(world))
        const schedule = yield* Effect.provide(makeSchedule, context)
        const jobs = Context.get(context, Jobs)
        const [orgId, uid, first, asked] = [uuid(), uuid(), uuid(), uuid()]
        const job = { orgId, databaseUid: uid, lineage: uid }
        yield* onStore(
          world,
          `insert into backup_job (org_id, id, kind, database_uid, lineage, reason, status, finished_at, due_at,
             timeline, consistent_at, drill)
           select '${orgId}', id, 'backup', '${uid}', '${uid}', 'request', 'succeeded', now(), null, 1, now(), drill
           from (values ('${first}'::uuid, false), ('${asked}', true)) as b(id, drill)`
        )
        const database = {
          orgId,
          uid,
          lineage: uid,
          policy: defaultBackupPolicy,
          destinationIds: [],
          ready: true
        }
        const proofs = Effect.map(
          onStore(
            world,
            `select backup_id as id from backup_job where kind = 'drill' order by created_at, id`
          ),
          (rows) => rows.map(({ id }) => id)
        )
        const end = onStore(
          world,
          "update backup_job set status = 'failed', finished_at = now(), due_at = null where kind = 'drill'"
        )
        yield* jobs.queue({ ...job, kind: "drill", backupId: first, reason: "schedule" })
        yield* schedule([database])
        assert.deepStrictEqual(yield* proofs, [first])
        yield* end
        yield* schedule([database])
        assert.deepStrictEqual(yield* proofs, [first, asked])
        // Once: that it failed is the answer.
        yield* end
        yield* schedule([database])
        assert.deepStrictEqual(yield* proofs, [first, asked])
      })
    )
  )
})
