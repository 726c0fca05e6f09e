import { assert, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { countedBacklog } from "#schemas/queue.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import * as consume from "#src/queues/consume.ts"
import { QueueLimits } from "#src/queues/limits.ts"
import { Messages } from "#src/queues/Messages.ts"
import { QueueDeliveries } from "#src/queues/QueueDeliveries.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { tidy } from "#src/queues/tidy.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { reply, startApp } from "./app.ts"

const mebibyte = 1024 * 1024
const limited = (values: Partial<QueueLimits>) =>
  Layer.effect(
    QueueLimits,
    Effect.map(QueueLimits, (defaults) => ({ ...defaults, ...values }))
  )

const services = (limits: Partial<QueueLimits>) =>
  Layer.mergeAll(
    Resources.layer,
    Messages.layer,
    QueueDeliveries.layer,
    QueueTables.layer,
    Invocations.layer,
    Outbound.layer.pipe(Layer.provide(CertificateAuthority.layer), Layer.provide(PlatformSecrets.layer))
  ).pipe(
    Layer.provideMerge(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb()),
    Layer.provideMerge(limited(limits)),
    Layer.provide(AppConfig.layerWith({ outboundAllow: ["127.0.0.0/8"] })),
    Layer.provide(Logger.layer([]))
  )

const makeTenant = Effect.fnUntraced(function* (origin: string | undefined) {
  const { engine: sql } = yield* Db
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  if (origin !== undefined) {
    yield* sql`update resource set spec = ${sql.json({ origin })} where uid = ${production}::uuid`
  }
  /** A queue as its reconciler leaves it. */
  const queue = Effect.fnUntraced(function* (
    settings: { readonly letters?: string; readonly size?: number } = {}
  ) {
    const uid = uuid()
    const change = {
      action: "create",
      uid,
      kind: "Queue",
      projectId,
      environment: "production",
      name: `q${uid.slice(-12)}`,
      parentUid: production,
      spec: {},
      managedBy: "api"
    } as const
    yield* (yield* Resources).write(orgId, [change], actor)
    const ref = { orgId, uid, fence: 1n, environmentUid: production }
    yield* (yield* QueueTables).apply(
      ref,
      {
        paused: false,
        retention_seconds: 3_600,
        dead_letter_uid: settings.letters ?? null,
        path: "/",
        max_batch_size: settings.size ?? 1,
        max_batch_wait_seconds: 0,
        max_retries: 0,
        retry_delay_seconds: 0
      },
      16
    )
    const messages = yield* Messages
    const publish = (count: number, body = "1") =>
      messages.publish(
        orgId,
        uid,
        Array.from({ length: count }, () => ({ body, delaySeconds: 0 })),
        actor
      )
    return { ...ref, publish }
  })
  return { orgId, queue }
})

const until = (holds: () => boolean) => eventually("the queue has come so far", Effect.sync(holds))

/** What the store says that queues hold, beside what they hold. */
const held = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  return yield* Effect.orDie(sql<{
    readonly messages: number
    readonly bytes: number
    readonly agrees: boolean
  }>`
    with counted as (
      select org_id, coalesce(queue_uid, '00000000-0000-0000-0000-000000000000') as queue_uid, count(*) as messages,
        sum(octet_length(body)) as bytes
      from queue_message group by grouping sets ((org_id, queue_uid), (org_id))
    ), kept as (
      select org_id, queue_uid, sum(messages) as messages, sum(bytes) as bytes from queue_backlog group by 1, 2
    )
    select coalesce(k.messages, 0)::int as messages, coalesce(k.bytes, 0)::int as bytes,
      coalesce(k.messages, 0) = coalesce(c.messages, 0) and coalesce(k.bytes, 0) = coalesce(c.bytes, 0) as agrees
    from kept k full join counted c using (org_id, queue_uid)`)
})
const agree = Effect.map(held, (rows) =>
  assert.deepStrictEqual(
    rows.filter(({ agrees }) => !agrees),
    []
  )
)

layer(services({ queueMessages: 10, queueBytes: 2_000, orgMessages: 15, orgBytes: 2_500 }), {
  excludeTestServices: true
})("a backlog", (it) => {
  it.effect("is bounded for each queue and for all of an organization, in messages and in bytes", () =>
    Effect.gen(function* () {
      const tenant = yield* makeTenant(undefined)
      const [first, second] = [yield* tenant.queue(), yield* tenant.queue()]
      const other = yield* (yield* makeTenant(undefined)).queue()
      const refusal = (self: Effect.Effect<unknown, { readonly message: string }>) =>
        Effect.map(Effect.flip(self), ({ message }) => message)
      assert.lengthOf(yield* first.publish(9), 9)
      assert.include(yield* refusal(first.publish(2)), "The queue may hold 10 messages")
      assert.lengthOf(yield* first.publish(1), 1)
      assert.lengthOf(yield* second.publish(5), 5)
      assert.include(
        yield* refusal(second.publish(1)),
        "The organization may hold 15 messages in all of its queues"
      )
      assert.lengthOf(yield* other.publish(10), 10)
      yield* agree
      const messages = yield* Messages
      assert.strictEqual(yield* messages.purge(first.orgId, first.uid, actor), 10)
      assert.lengthOf(yield* first.publish(1, "x".repeat(1_990)), 1)
      assert.include(yield* refusal(first.publish(1, "x".repeat(20))), "The queue may hold 2000 bytes")
      assert.include(
        yield* refusal(second.publish(1, "x".repeat(600))),
        "The organization may hold 2500 bytes in all of its queues"
      )
      yield* agree
      // A queue that is gone is not called full.
      assert.deepStrictEqual(
        yield* messages.publish(first.orgId, uuid(), [{ body: "1", delaySeconds: 0 }], actor),
        []
      )
    })
  )

  it.effect("is known exactly, whatever takes messages away or moves them", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const deliveries = yield* QueueDeliveries
      const messages = yield* Messages
      const tenant = yield* makeTenant(undefined)
      const dead = yield* tenant.queue()
      const jobs = yield* tenant.queue({ letters: dead.uid, size: 3 })
      yield* jobs.publish(4, '"ä"')
      const batch = (yield* deliveries.claim(jobs))!
      const [done, failed, again] = batch.messages
      yield* deliveries.settle(batch, [
        { id: done?.id ?? "", outcome: "ack" },
        { id: failed?.id ?? "", outcome: "reject", why: "no" },
        { id: again?.id ?? "", outcome: "retry", why: "not now", delaySeconds: 60 }
      ])
      yield* agree
      assert.strictEqual((yield* messages.stats(dead.orgId, dead.uid)).backlog, 1 + 1)
      assert.strictEqual(yield* messages.redrive(jobs.orgId, jobs.uid, 1, actor), 1)
      yield* agree
      yield* sql`update queue_message set entered_at = now() - interval '2 hours',
        id = ('00000000' || substr(id::text, 9))::uuid where queue_uid = ${jobs.uid}::uuid`
      yield* tidy
      yield* agree
      const left = yield* sql`select 1 from queue_message where queue_uid = ${jobs.uid}::uuid`
      assert.lengthOf(left, 0)
      yield* jobs.publish(2)
      yield* (yield* QueueTables).remove({ ...jobs, fence: 2n })
      yield* agree
      // What was counted of it goes once it is deleted.
      yield* sql`update resource set deleted_at = now(), deletion_requested_at = now() where uid = ${jobs.uid}::uuid`
      yield* tidy
      assert.deepStrictEqual(yield* sql`select 1 from queue_backlog where queue_uid = ${jobs.uid}::uuid`, [])
      yield* agree
    })
  )

  it.effect("is counted up to a bound when somebody asks", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const messages = yield* Messages
      const tenant = yield* makeTenant(undefined)
      const [long, letters] = [yield* tenant.queue(), yield* tenant.queue()]
      const more = countedBacklog + 500
      yield* sql`
        insert into queue_message (org_id, queue_uid, id, body, due_at, failed, source_uid, lease_token)
        select ${tenant.orgId}::uuid, q, gen_random_uuid(), '1', now() + due, failed, source, lease
        from generate_series(1, ${more}::int) i cross join (values
          (${long.uid}::uuid, interval '0', false, null::uuid, null::bigint),
          (${long.uid}::uuid, interval '1 hour', false, null, null),
          (${long.uid}::uuid, interval '0', true, null, null),
          (${letters.uid}::uuid, interval '0', false, ${long.uid}::uuid, null)) as v(q, due, failed, source, lease)`
      yield* sql`insert into queue_message (org_id, queue_uid, id, body, due_at, lease_token)
        select ${tenant.orgId}::uuid, ${long.uid}::uuid, gen_random_uuid(), '1', now() + interval '30 minutes', 7
        from generate_series(1, 20)`
      const { oldestMessageAt, oldestMessageAgeSeconds, ...counts } = yield* messages.stats(
        tenant.orgId,
        long.uid
      )
      assert.deepStrictEqual(counts, {
        backlog: countedBacklog,
        delayed: countedBacklog - 20,
        inFlight: 20,
        failed: countedBacklog,
        inDeadLetterQueue: countedBacklog
      })
      assert.isNotNull(oldestMessageAt)
      assert.isAtLeast(oldestMessageAgeSeconds, 0)
      yield* sql`delete from queue_message where org_id = ${tenant.orgId}::uuid`
      yield* agree
    })
  )
})

/** Two tenants: the app of the first never answers until it is told to. */
const slowAndQuick = Effect.gen(function* () {
  const slow = yield* startApp
  const waiting: Array<() => void> = []
  slow.answer = (_, response) => {
    waiting.push(() => reply(response, 204))
  }
  const quick = yield* startApp
  return {
    slow,
    quick,
    hung: yield* makeTenant(slow.origin),
    well: yield* makeTenant(quick.origin),
    answer: () => {
      slow.answer = (_, response) => reply(response, 204)
      for (const one of waiting.splice(0)) one()
    }
  }
})

it.live(
  "queues of an app that never answers hold their organization's share of the batches, and no more",
  () =>
    Effect.gen(function* () {
      const { slow, quick, hung, well, answer } = yield* slowAndQuick
      const queues = yield* Effect.forEach([1, 2, 3, 4], () => hung.queue())
      for (const queue of queues) yield* queue.publish(10)
      yield* Layer.build(Layer.fresh(consume.layer))
      yield* until(() => slow.batches.length >= 4)
      const other = yield* well.queue()
      yield* other.publish(20)
      yield* until(() => quick.batches.length === 20)
      assert.strictEqual(slow.batches.length, 4)
      // Each gets its turn when there is room again, and all of it arrives.
      answer()
      yield* until(() => slow.batches.length === 40)
      assert.sameMembers(
        [...new Set(slow.batches.map(({ queueId }) => queueId))],
        queues.map(({ uid }) => uid)
      )
    }).pipe(Effect.scoped, Effect.provide(services({ batches: 8 })))
)

it.live("large batches of an app that never answers hold their organization's share of the memory", () =>
  Effect.gen(function* () {
    const { slow, quick, hung, well, answer } = yield* slowAndQuick
    const body = JSON.stringify("x".repeat(110_000))
    const queues = yield* Effect.forEach([1, 2, 3, 4], () => hung.queue({ size: 9 }))
    for (const queue of queues) yield* queue.publish(9, body)
    yield* Layer.build(Layer.fresh(consume.layer))
    yield* until(() => slow.batches.length >= 2)
    const other = yield* well.queue()
    yield* other.publish(5)
    yield* until(() => quick.batches.length === 5)
    assert.strictEqual(slow.batches.length, 2)
    answer()
    yield* until(() => slow.batches.length === 4)
  }).pipe(Effect.scoped, Effect.provide(services({ batchBytes: 4 * mebibyte })))
)
