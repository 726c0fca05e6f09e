/** What is kept of objects at Stripe, where several look at one at the same moment, and where there are many. */
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { PaymentEvents } from "#src/payments/PaymentEvents.ts"
import { Projections } from "#src/payments/Projections.ts"
import { Db, transaction } from "#src/store/Db.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { newConnection, paymentsStore } from "./connection.ts"

const product = (processorId: string) => ({
  type: "product" as const,
  processorId,
  content: {},
  created: 1,
  product: null,
  customer: null,
  price: null,
  intent: null
})

layer(paymentsStore, { excludeTestServices: true })("what is kept of objects at Stripe", (it) => {
  it.effect("an earlier look answers which object it is while a later one is being stored", () =>
    Effect.gen(function* () {
      const { id: orgId } = yield* makeOrganization()
      const ref = { orgId, uid: yield* newConnection(orgId) }
      const projections = yield* Projections
      const { engine: sql } = yield* Db
      const held = yield* Deferred.make<void>()
      const inserted = yield* Deferred.make<void>()
      const id = uuid()
      const later = Effect.gen(function* () {
        yield* sql`
          insert into payment_object (org_id, id, connection_uid, type, processor_id, content, created_at, looked_at)
          values (${orgId}::uuid, ${id}::uuid, ${ref.uid}::uuid, 'product', 'prod_1', '{}', now(), now() + interval '1 hour')`
        yield* Deferred.succeed(inserted, undefined)
        yield* Deferred.await(held)
      })
      const storing = yield* Effect.forkChild(transaction(sql, later))
      yield* Effect.raceFirst(Deferred.await(inserted), Fiber.join(storing))
      const looking = yield* Effect.forkChild(
        projections.store(ref, yield* projections.now, [product("prod_1")])
      )
      yield* eventually(
        "the earlier look waits for the later one",
        sql`select from pg_locks where not granted and pid in (
          select pid from pg_stat_activity where datname = current_database())`,
        (rows) => rows.length > 0
      )
      yield* Deferred.succeed(held, undefined)
      yield* Fiber.join(storing)
      assert.deepStrictEqual((yield* Fiber.join(looking)).get("prod_1"), { id, stored: false })
    })
  )

  it.effect("long lists, and waiting events of others, are not read through", () =>
    Effect.gen(function* () {
      const { id: orgId } = yield* makeOrganization()
      const uid = yield* newConnection(orgId)
      const { engine: sql } = yield* Db
      yield* sql`
        insert into payment_object (org_id, id, connection_uid, type, processor_id, content, created_at, looked_at)
        select ${orgId}::uuid, gen_random_uuid(), ${uid}::uuid, 'product', 'prod_' || i, '{}', now(), now() - i * interval '1 s'
        from generate_series(1, 20000) i`
      yield* sql`
        insert into payment_event (org_id, id, connection_uid, processor_id, type, object_type, object_id, status, occurred_at)
        select ${orgId}::uuid, gen_random_uuid(), ${uid}::uuid, 'evt_' || i, 'product.updated', 'product', 'prod_' || i,
          'pending', now()
        from generate_series(1, 20000) i`
      yield* sql`analyze payment_object, payment_event`
      const reads = Effect.fnUntraced(function* (table: string, work: Effect.Effect<unknown, unknown>) {
        const scans = Effect.map(
          sql<{ readonly scanned: number }>`
            select pg_stat_get_xact_tuples_returned(c.oid)::int as scanned from pg_class c where c.relname = ${table}`,
          ([row]) => row?.scanned ?? 0
        )
        return yield* transaction(sql, Effect.orDie(Effect.andThen(work, scans)))
      })
      const projections = yield* Projections
      const events = yield* PaymentEvents
      const ref = { orgId, uid }
      const page = projections.list(ref, "product", 101, { createdAt: new Date(0), id: uuid() })
      assert.isBelow(yield* reads("payment_object", page), 1_000)
      const unseen = projections.notSeenSince(ref, "product", new Date(), 100)
      assert.isBelow(yield* reads("payment_object", unseen), 1_000)
      assert.isBelow(yield* reads("payment_object", projections.some(ref)), 1_000)
      assert.isBelow(yield* reads("payment_event", events.nextIn), 1_000)
      assert.isBelow(yield* reads("payment_event", events.list(ref, 101)), 1_000)
    })
  )
})
