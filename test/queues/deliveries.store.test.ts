import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Messages } from "#src/queues/Messages.ts"
import { type Batch, QueueDeliveries } from "#src/queues/QueueDeliveries.ts"
import { type QueueSettings, QueueTables } from "#src/queues/QueueTables.ts"
import { tidy } from "#src/queues/tidy.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { newReservation, type Reservation } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const Fixture = Layer.mergeAll(
  Resources.layer,
  Messages.layer,
  QueueDeliveries.layer,
  QueueTables.layer
).pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

const usual: QueueSettings = {
  paused: false,
  retention_seconds: 3600,
  dead_letter_uid: null,
  path: "/",
  max_batch_size: 10,
  max_batch_wait_seconds: 0,
  max_retries: 3,
  retry_delay_seconds: 0
}

/** A queue as its reconciler leaves it. */
const makeQueue = Effect.fnUntraced(function* (settings: Partial<QueueSettings> = {}, slots = 2) {
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, `p${uuid().slice(-8)}`)
  const uid = uuid()
  const change = {
    action: "create",
    uid,
    kind: "Queue",
    projectId,
    environment: "production",
    name: "jobs",
    parentUid: production,
    spec: {},
    managedBy: "api"
  } as const
  yield* (yield* Resources).write(orgId, [change], actor)
  const place = { orgId, uid, fence: 5n, environmentUid: production }
  const tables = yield* QueueTables
  yield* tables.apply(place, { ...usual, ...settings }, slots)
  const messages = yield* Messages
  const publish = (count: number, more: { readonly key?: string; readonly delaySeconds?: number } = {}) =>
    messages.publish(
      orgId,
      uid,
      Array.from({ length: count }, (_, i) => ({ body: String(i), delaySeconds: 0, ...more })),
      actor
    )
  return { ...place, publish, stats: messages.stats(orgId, uid) }
})

const expire = Effect.fnUntraced(function* ({ uid }: { readonly uid: string }) {
  const { engine: sql } = yield* Db
  yield* sql`update queue_slot set lease_until = now() where queue_uid = ${uid}::uuid and lease_token is not null`
  yield* sql`update queue_message set due_at = now() where queue_uid = ${uid}::uuid and lease_token is not null`
})
const acks = (batch: Batch | undefined) =>
  (batch?.messages ?? []).map(({ id }) => ({ id, outcome: "ack" as const }))

layer(Fixture, { excludeTestServices: true })("deliveries", (it) => {
  it.effect("of many claimers share out every message once, in no more batches than there are slots", () =>
    Effect.gen(function* () {
      const deliveries = yield* QueueDeliveries
      const queue = yield* makeQueue({}, 3)
      const published = yield* queue.publish(100)
      const seen: Array<string> = []
      let open = 0
      let most = 0
      const claimer = Effect.gen(function* () {
        while (seen.length < 100) {
          const batch = yield* deliveries.claim(queue)
          if (batch === undefined) {
            yield* Effect.sleep("2 millis")
            continue
          }
          most = Math.max(most, ++open)
          assert.isAtMost(batch.messages.length, 10)
          seen.push(...batch.messages.map(({ id }) => id))
          yield* Effect.sleep("5 millis")
          open--
          yield* deliveries.settle(batch, acks(batch))
        }
      })
      yield* Effect.all(
        Array.from({ length: 8 }, () => claimer),
        { concurrency: 8 }
      ).pipe(Effect.timeout("90 seconds"))
      assert.sameMembers(
        seen,
        published.map(({ id }) => id)
      )
      assert.strictEqual(seen.length, 100)
      assert.isAtMost(most, 3)
      assert.strictEqual((yield* queue.stats).backlog, 0)
    })
  )

  it.effect("whose holder vanished go to another, and the old holder changes nothing any more", () =>
    Effect.gen(function* () {
      const deliveries = yield* QueueDeliveries
      const queue = yield* makeQueue()
      yield* queue.publish(3)
      const first = yield* deliveries.claim(queue)
      assert.strictEqual(first?.messages.length, 3)
      assert.isUndefined(yield* deliveries.claim(queue))
      yield* expire(queue)
      const second = yield* deliveries.claim(queue)
      assert.deepStrictEqual(
        second?.messages.map(({ attempt }) => attempt),
        [2, 2, 2]
      )
      // Late in every way it can be: answered, renewed, given back.
      yield* deliveries.settle(first!, acks(first))
      yield* deliveries.settle(
        first!,
        first!.messages.map(({ id }) => ({ id, outcome: "reject", why: "late" }))
      )
      yield* deliveries.giveBack(first!, false)
      const stats = yield* queue.stats
      assert.deepStrictEqual([stats.backlog, stats.inFlight, stats.failed], [3, 3, 0])
      yield* deliveries.settle(second!, acks(second))
      assert.strictEqual((yield* queue.stats).backlog, 0)
    })
  )

  it.effect("that are given back are no try; a renewal keeps others away", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const deliveries = yield* QueueDeliveries
      const queue = yield* makeQueue()
      yield* queue.publish(1)
      yield* deliveries.giveBack((yield* deliveries.claim(queue))!, false)
      const batch = yield* deliveries.claim(queue)
      assert.strictEqual(batch?.messages[0]?.attempt, 1)
      yield* expire(queue)
      yield* deliveries.renew(batch!)
      assert.isUndefined(yield* deliveries.claim(queue))
      const [slot] = yield* sql<{ readonly ahead: boolean }>`
        select lease_until > now() as ahead from queue_slot where lease_token = ${batch!.token}`
      assert.isTrue(slot?.ahead)
    })
  )

  it.effect("of a batch stay small enough for an app, however many messages it may hold", () =>
    Effect.gen(function* () {
      const { orgId, uid } = yield* makeQueue({ max_batch_size: 100 }, 20)
      const deliveries = yield* QueueDeliveries
      const body = JSON.stringify("x".repeat(100_000))
      yield* (yield* Messages).publish(
        orgId,
        uid,
        Array.from({ length: 25 }, () => ({ body, delaySeconds: 0 })),
        actor
      )
      const sizes: Array<number> = []
      for (let left = 25; left > 0; ) {
        const batch = yield* deliveries.claim({ orgId, uid })
        left -= batch!.messages.length
        sizes.push(batch!.messages.length)
      }
      assert.deepStrictEqual(sizes, [10, 10, 5])
    })
  )

  it.effect("of what is too old are none, and keys are forgotten after a day", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const queue = yield* makeQueue()
      const [old] = yield* queue.publish(1, { key: "daily" })
      assert.isTrue((yield* queue.publish(1, { key: "daily" }))[0]?.duplicate)
      // As if it had been published two hours ago; its id tells the time as well.
      const before = `${(Date.now() - 7_200_000).toString(16).padStart(12, "0")}`
      const aged = `${before.slice(0, 8)}-${before.slice(8)}-7000-8000-${old!.id.slice(-12)}`
      yield* sql`update queue_message set id = ${aged}::uuid, entered_at = now() - interval '2 hours'
        where queue_uid = ${queue.uid}::uuid`
      yield* queue.publish(1)
      yield* tidy
      assert.strictEqual((yield* queue.stats).backlog, 1)
      yield* sql`update queue_key set at = now() - interval '25 hours'`
      assert.isFalse((yield* queue.publish(1, { key: "daily" }))[0]?.duplicate)
      assert.strictEqual((yield* queue.stats).backlog, 2)
    })
  )

  it.effect("published while their queue went are removed, and those of other queues stay", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const [gone, other] = [yield* makeQueue(), yield* makeQueue()]
      yield* gone.publish(2)
      yield* other.publish(1)
      yield* sql`update resource set deletion_requested_at = now(), deleted_at = now() where uid = ${gone.uid}::uuid`
      yield* tidy
      assert.deepStrictEqual([(yield* gone.stats).backlog, (yield* other.stats).backlog], [0, 1])
      assert.deepStrictEqual(yield* gone.publish(1), [])
    })
  )

  it.effect("are audited once an hour for each who publishes, however many there are", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const messages = yield* Messages
      const queue = yield* makeQueue()
      const one = [{ body: "1", delaySeconds: 0 }]
      const as = (principal: string) => ({ ...actor, operation: "queues.publish", principal })
      const publish = (principal: string) => messages.publish(queue.orgId, queue.uid, one, as(principal))
      for (const principal of ["ann", "ann", "ben", "ann", "ben"]) yield* publish(principal)
      // A publication that reached nothing says nothing.
      yield* messages.publish(queue.orgId, uuid(), one, as("ann"))
      const records = yield* sql`select principal, resource from audit_log
        where org_id = ${queue.orgId}::uuid and operation = 'queues.publish' order by id`
      assert.deepStrictEqual(
        [...records],
        [
          { principal: "ann", resource: queue.uid },
          { principal: "ben", resource: queue.uid }
        ]
      )
    })
  )

  it.effect("of one key by many at once are one", () =>
    Effect.gen(function* () {
      const queue = yield* makeQueue()
      const answers = yield* Effect.all(
        Array.from({ length: 20 }, () => queue.publish(1, { key: "same" })),
        { concurrency: 20 }
      )
      assert.strictEqual(new Set(answers.map(([one]) => one?.id)).size, 1)
      assert.strictEqual(answers.filter(([one]) => one?.duplicate === false).length, 1)
      assert.strictEqual((yield* queue.stats).backlog, 1)
    })
  )

  it.effect("get another chance once for each request, however often it is tried", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const messages = yield* Messages
      const queue = yield* makeQueue()
      yield* queue.publish(5)
      yield* sql`update queue_message set failed = true where queue_uid = ${queue.uid}::uuid`
      const redrive = (limit: number, reservation?: Reservation) =>
        messages.redrive(queue.orgId, queue.uid, limit, actor, reservation)
      const audits = Effect.map(
        sql`select from audit_log where org_id = ${queue.orgId}::uuid and resource = ${queue.uid}`,
        (rows) => rows.length
      )
      const before = yield* audits
      const first = newReservation(true)
      for (const again of [false, true, true]) {
        assert.strictEqual(yield* redrive(2, { ...first, again }), 2)
        assert.strictEqual((yield* queue.stats).failed, 3)
      }
      assert.strictEqual(yield* audits, before + 1)
      assert.strictEqual(yield* redrive(2, newReservation(true)), 2)
      assert.strictEqual(yield* redrive(2), 1)
      // What was given up after a request that found nothing is not what that request was about.
      const none = newReservation(true)
      assert.strictEqual(yield* redrive(2, none), 0)
      yield* sql`update queue_message set failed = true where queue_uid = ${queue.uid}::uuid`
      assert.strictEqual(yield* redrive(2, { ...none, again: true }), 0)
      assert.strictEqual(yield* redrive(2), 2)
      assert.strictEqual(yield* redrive(2), 2)
      assert.strictEqual(yield* redrive(2), 1)
      assert.strictEqual(yield* redrive(2), 0)
    })
  )

  it.effect("of an organization are seen and changed by nobody else's requests", () =>
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const messages = yield* Messages
      const queue = yield* makeQueue()
      yield* queue.publish(2)
      const other = yield* makeOrganization()
      assert.strictEqual((yield* messages.stats(other.id, queue.uid)).backlog, 0)
      assert.deepStrictEqual(
        yield* messages.publish(other.id, queue.uid, [{ body: "1", delaySeconds: 0 }], actor),
        []
      )
      assert.strictEqual(yield* messages.purge(other.id, queue.uid, actor), 0)
      assert.strictEqual(yield* messages.redrive(other.id, queue.uid, 10, actor), 0)
      assert.strictEqual((yield* queue.stats).backlog, 2)
      for (const table of ["queue", "queue_slot", "queue_message", "queue_key"])
        assert.deepStrictEqual(yield* sql`select 1 from ${sql(table)}`, [], table)
    })
  )

  it.effect("find what is due by the index, among many messages of many queues", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const queue = yield* makeQueue()
      yield* sql`
        insert into queue_message (org_id, queue_uid, id, body, due_at)
        select ${queue.orgId}::uuid, case when i % 2 = 0 then ${queue.uid}::uuid else gen_random_uuid() end,
          gen_random_uuid(), '{}', now() + make_interval(secs => i - 10) from generate_series(1, 20000) i`
      yield* sql`analyze queue_message`.pipe(Effect.ignore)
      const plan = yield* sql<{ readonly "QUERY PLAN": string }>`
        explain select m.ctid from queue_message m
        where m.org_id = ${queue.orgId}::uuid and m.queue_uid = ${queue.uid}::uuid and not m.failed and m.due_at <= now()
        order by m.due_at limit 10 for update skip locked`
      const text = plan.map((row) => row["QUERY PLAN"]).join("\n")
      assert.include(text, "queue_message_due")
      assert.notInclude(text, "Sort")
      yield* sql`delete from queue_message where org_id = ${queue.orgId}::uuid`
    })
  )
})
