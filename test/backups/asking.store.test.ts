/** Asking for backups and drills, and what a request that is tried again is answered with. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Jobs } from "#src/backups/Jobs.ts"
import { Db } from "#src/store/Db.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { onStore, storeWorld } from "./world.ts"

const setUp = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { id: orgId } = yield* makeOrganization()
  const databaseUid = uuid()
  const backup = {
    orgId,
    databaseUid,
    lineage: databaseUid,
    kind: "backup",
    backupId: null,
    reason: "request"
  } as const
  const isToBeProved = (id: string) =>
    Effect.map(sql`select drill from backup_job where id = ${id}::uuid`, ([row]) => row?.["drill"])
  const end = (id: string, status: "succeeded" | "failed") =>
    sql`update backup_job set status = ${status}, finished_at = now(), due_at = null where id = ${id}::uuid`
  return { backup, isToBeProved, end, jobs: yield* Jobs }
})

const fresh = <E, R>(db: Layer.Layer<Db, E, R>) => Layer.fresh(Jobs.layer.pipe(Layer.provideMerge(db)))

layer(fresh(testDb()), { excludeTestServices: true })("a request for a backup that is tried again", (it) => {
  it.effect("has its proof, whether the backup of somebody else goes on or has ended since", () =>
    Effect.gen(function* () {
      const { backup, isToBeProved, end, jobs } = yield* setUp
      const asked = { ...newReservation(true), again: true }
      const other = yield* jobs.queue({ ...backup, reason: "schedule" })
      assert.isFalse(yield* isToBeProved(other.id))
      const open = yield* jobs.queue({ ...backup, drill: true }, actor, asked)
      assert.deepStrictEqual([open.id, yield* isToBeProved(other.id)], [other.id, true])
      // A later try that wants no proof takes none away.
      yield* jobs.queue(backup, actor, asked)
      assert.isTrue(yield* isToBeProved(other.id))
      yield* end(other.id, "succeeded")

      const second = { ...newReservation(true), again: true }
      const next = yield* jobs.queue({ ...backup, reason: "schedule" })
      yield* end(next.id, "succeeded")
      const ended = yield* jobs.queue({ ...backup, drill: true }, actor, second)
      assert.deepStrictEqual([ended.id, ended.status], [next.id, "succeeded"])
      assert.isTrue(yield* isToBeProved(next.id))
    })
  )

  it.effect("is answered with what it made, also when the database is another one by now", () =>
    Effect.gen(function* () {
      const { backup, end, jobs } = yield* setUp
      const reservation = newReservation(true)
      const made = yield* jobs.queue(backup, actor, reservation)
      assert.strictEqual(made.id, reservation.uid)
      const restored = { ...backup, lineage: uuid() }
      // One that was deleted, and made anew under the same name.
      const anew = { ...restored, databaseUid: uuid() }
      for (const ended of [false, true]) {
        if (ended) yield* end(made.id, "failed")
        for (const [job, again] of [
          [restored, true],
          [restored, false],
          [anew, true],
          [anew, false]
        ] as const) {
          const answered = yield* Effect.timeout(
            jobs.queue(job, actor, { ...reservation, again }),
            "1 minute"
          )
          assert.deepStrictEqual([answered.id, answered.lineage], [made.id, backup.lineage])
        }
      }
    })
  )

  it.effect("fails when the store contradicts itself, and does not ask for ever", () =>
    Effect.gen(function* () {
      const world = yield* storeWorld
      // As if whatever keeps the job from being made were gone each time it is looked for.
      yield* onStore(
        world,
        `create function nothing() returns trigger language plpgsql as 'begin return null; end';
           create trigger never before insert on backup_job for each row execute function nothing()`
      )
      const error = yield* Effect.gen(function* () {
        const { backup, jobs } = yield* setUp
        const asking = jobs.queue(backup, actor, newReservation(true))
        return yield* Effect.flip(Effect.timeout(asking, "1 minute"))
      }).pipe(Effect.provide(fresh(Db.layer({ url: world.storeUrl }))))
      assert.strictEqual(error._tag, "StoreUnavailable")
    }).pipe(Effect.scoped)
  )
})
