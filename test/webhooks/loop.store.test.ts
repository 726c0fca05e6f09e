import * as Effect from "effect/Effect"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Db } from "#src/store/Db.ts"
import { deliveriesLoop, type Outcome } from "#src/webhooks/deliver.ts"
import type { Claimed } from "#src/webhooks/WebhookDeliveries.ts"
import { Webhooks } from "#src/webhooks/Webhooks.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { fixture, subscribe } from "./setting.ts"

leasedLoopSuite(
  "of webhooks",
  fixture,
  Effect.gen(function* () {
    const db = yield* Db
    const webhooks = yield* Webhooks
    const loop = yield* deliveriesLoop
    const outbound = yield* Outbound
    const sql = db.engine
    /** Of each organization. */
    const endpoints = new Map<string, string>()
    const table: Table<Claimed, Outcome> = {
      ...rowsOf(db, { table: "webhook_delivery", done: sql`state = 'delivered'` }),
      port: {
        ...loop,
        run: (delivery) => Effect.provideService(loop.run(delivery), Outbound, outbound)
      },
      makeOrganization: Effect.gen(function* () {
        const { id } = yield* makeOrganization()
        endpoints.set(id, (yield* subscribe(id, "https://example.com/")).id)
        return id
      }).pipe(Effect.provideService(Db, db), Effect.provideService(Webhooks, webhooks), Effect.orDie),
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with event as (
            insert into webhook_event (org_id, id, type, data) values (${orgId}::uuid, ${uuid()}::uuid, 'test', '{}')
            returning org_id, id
          )
          insert into webhook_delivery (org_id, id, webhook_id, event_id, due_at)
          select org_id, ${id}::uuid, ${endpoints.get(orgId) ?? ""}::uuid, id,
            now() + ${dueIn}::float8 * interval '1 millisecond'
          from event`.pipe(Effect.as(id), Effect.orDie)
      },
      clear: Effect.asVoid(Effect.orDie(sql`delete from webhook_event`)),
      succeeded: ({ claimedAt }) => ({
        _tag: "Delivered",
        attempt: { startedAt: new Date(claimedAt).toISOString(), durationMs: 1, statusCode: 204, error: null }
      })
    }
    return table
  })
)
