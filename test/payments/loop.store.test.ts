/** The loops of payments keep what every leased loop promises. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { ComparisonJob, ComparisonOutcome } from "#src/payments/Comparisons.ts"
import { comparisonsLoop } from "#src/payments/compare.ts"
import { type EventJob, type EventOutcome, PaymentEvents } from "#src/payments/PaymentEvents.ts"
import { eventsLoop } from "#src/payments/work.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { newConnection, paymentsStore } from "./connection.ts"

layer(paymentsStore)("events of payments", (it) => {
  it.effect("an event that the store refuses keeps out none that is stored with it", () =>
    Effect.gen(function* () {
      const { id: orgId } = yield* makeOrganization()
      const uid = yield* newConnection(orgId)
      const events = yield* PaymentEvents
      const store = (processorId: string, type: string) =>
        Effect.result(
          events.store({
            orgId,
            uid,
            processorId,
            type,
            occurred: 1,
            object: undefined,
            ignored: "A test"
          })
        )
      // The first is under way alone, and the others wait for it together.
      const stored = yield* Effect.all(
        [store("evt_1", "a"), store("evt_2", "a"), store("evt_3", "x\u0000"), store("evt_4", "a")],
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        stored.map(({ _tag }) => _tag),
        ["Success", "Success", "Failure", "Success"]
      )
    })
  )
})

leasedLoopSuite(
  "of events of payments",
  paymentsStore,
  Effect.gen(function* () {
    const db = yield* Db
    const resources = yield* Resources
    const sql = db.engine
    const connections = new Map<string, string>()
    const table: Table<EventJob, EventOutcome> = {
      ...rowsOf(db, { table: "payment_event", done: sql`status = 'processed'` }),
      port: yield* eventsLoop,
      makeOrganization: Effect.gen(function* () {
        const { id } = yield* makeOrganization()
        connections.set(id, yield* newConnection(id))
        return id
      }).pipe(Effect.provideService(Db, db), Effect.provideService(Resources, resources), Effect.orDie),
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with made as (insert into payment_event (org_id, id, connection_uid, processor_id, type, object_type, object_id, status,
            occurred_at, due_at)
          values (${orgId}::uuid, ${id}::uuid, ${connections.get(orgId) ?? ""}::uuid, ${id}, 'test', 'product', ${id},
            'pending', now(), now() + ${dueIn}::float8 * interval '1 millisecond') returning id)
          select pg_notify('svc_payments', '') from made`.pipe(Effect.as(id), Effect.orDie)
      },
      clear: Effect.asVoid(Effect.orDie(sql`delete from payment_event`)),
      succeeded: () => ({ _tag: "Processed" })
    }
    return table
  })
)

leasedLoopSuite(
  "of comparisons of payments",
  paymentsStore,
  Effect.gen(function* () {
    const db = yield* Db
    const resources = yield* Resources
    const sql = db.engine
    const table: Table<ComparisonJob, ComparisonOutcome> = {
      ...rowsOf(db, {
        table: "payment_connection",
        is: (uid) => sql`uid = ${uid}::uuid`,
        done: sql`due_at > now() + interval '1 day'`
      }),
      port: yield* comparisonsLoop,
      makeOrganization: Effect.map(makeOrganization(), ({ id }) => id).pipe(Effect.provideService(Db, db)),
      add: (orgId, dueIn = 0) =>
        Effect.gen(function* () {
          const uid = yield* newConnection(orgId)
          yield* sql`
            insert into payment_connection (org_id, uid, key_id, sealed, webhook_secret, fence, due_at)
            values (${orgId}::uuid, ${uid}::uuid, 'k', ''::bytea, '', 0,
              now() + ${dueIn}::float8 * interval '1 millisecond')`
          yield* sql`select pg_notify('svc_payment_comparisons', '')`
          return uid
        }).pipe(Effect.provideService(Db, db), Effect.provideService(Resources, resources), Effect.orDie),
      clear: Effect.asVoid(Effect.orDie(sql`delete from payment_connection`)),
      succeeded: () => ({ position: null, inSeconds: 10 * 86_400 })
    }
    return table
  })
)
