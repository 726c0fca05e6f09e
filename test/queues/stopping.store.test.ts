import { assert, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { Webhook } from "standardwebhooks"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { AppOrigins } from "#src/outbound/AppOrigins.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import * as consume from "#src/queues/consume.ts"
import { Messages } from "#src/queues/Messages.ts"
import { QueueDeliveries } from "#src/queues/QueueDeliveries.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { startApp } from "./app.ts"

const services = Layer.mergeAll(
  Resources.layer,
  Messages.layer,
  QueueTables.layer,
  Invocations.layer,
  Outbound.layer.pipe(Layer.provide(CertificateAuthority.layer), Layer.provide(PlatformSecrets.layer))
).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb()),
  Layer.provide(AppConfig.layerWith({ outboundAllow: ["127.0.0.0/8"] })),
  Layer.provide(Logger.layer([]))
)

/** An app and a queue that brings it one message. */
const oneMessage = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const app = yield* startApp
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  yield* sql`update resource set spec = ${sql.json({ origin: app.origin })} where uid = ${production}::uuid`
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
  const settings = {
    paused: false,
    retention_seconds: 3600,
    dead_letter_uid: null,
    path: "/",
    max_batch_size: 10,
    max_batch_wait_seconds: 0,
    max_retries: 3,
    retry_delay_seconds: 0
  }
  yield* (yield* QueueTables).apply({ orgId, uid, fence: 1n, environmentUid: production }, settings, 1)
  yield* (yield* Messages).publish(orgId, uid, [{ body: "1", delaySeconds: 0 }], actor)
  return { app, uid, environmentUid: production, orgId }
})

it.live("an app of ours is delivered to, and one that is not up yet costs no try", () =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const { app, uid, orgId, environmentUid } = yield* oneMessage
    yield* sql`update resource set spec = '{}' where uid = ${environmentUid}::uuid`
    yield* sql`
      insert into edge_site (org_id, environment_uid, label, app_uid)
      values (${orgId}::uuid, ${environmentUid}::uuid, ${`a${uid.slice(-12)}`}, ${uuid()}::uuid)`
    let looks = 0
    const find = () =>
      Effect.suspend(() =>
        ++looks < 3 ? Effect.fail(new StoreUnavailable({ message: "Not yet" })) : Effect.succeed(app.origin)
      )
    const invocations = Layer.fresh(Invocations.layer).pipe(
      Layer.provide(Layer.succeed(AppOrigins, { find }))
    )
    yield* Layer.build(Layer.fresh(consume.layer).pipe(Layer.provide(invocations)))
    yield* eventually(
      "the app is called",
      Effect.map(sql`select pg_notify('svc_queue', ${uid}::text)`, () => app.batches.length > 0)
    )
    assert.deepStrictEqual(
      app.batches.flatMap(({ messages }) => messages.map(({ attempt }) => attempt)),
      [1]
    )
  }).pipe(Effect.scoped, Effect.provide(services))
)

it.live("a process that is stopped gives back what it was delivering, for others at once and as no try", () =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const { app, uid } = yield* oneMessage
    app.answer = () => {}
    yield* Effect.scoped(
      Effect.andThen(
        Layer.build(Layer.fresh(consume.layer)),
        eventually(
          "the app is called",
          Effect.sync(() => app.batches.length > 0)
        )
      )
    )
    const [left] = yield* sql`
      select attempt, lease_token, due_at <= now() as due,
        (select count(*)::int from queue_slot where lease_token is not null) as held
      from queue_message where queue_uid = ${uid}::uuid`
    assert.deepStrictEqual(left, { attempt: 0, lease_token: null, due: true, held: 0 })
  }).pipe(Effect.provide(services))
)

it.live(
  "what a batch came to is offered again to a store that does not take it, and the app is not asked again",
  () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { app, uid } = yield* oneMessage
      let refused = 0
      const failing = Layer.effect(
        QueueDeliveries,
        Effect.map(QueueDeliveries, (real) => ({
          ...real,
          settle: (...args: Parameters<typeof real.settle>) =>
            Effect.suspend(() =>
              refused++ < 2
                ? Effect.fail(new StoreUnavailable({ message: "It takes nothing" }))
                : real.settle(...args)
            )
        }))
      ).pipe(Layer.provide(QueueDeliveries.layer))
      yield* Layer.build(Layer.fresh(consume.loops.pipe(Layer.provide(failing))))
      yield* eventually(
        "the message is gone",
        Effect.map(
          sql`select id from queue_message where queue_uid = ${uid}::uuid`,
          (rows) => rows.length === 0
        )
      )
      assert.isAtLeast(refused, 3)
      assert.lengthOf(app.batches, 1)
    }).pipe(Effect.scoped, Effect.provide(services))
)

it.live("a process whose clock is an hour off signs by the clock of the store", () =>
  Effect.gen(function* () {
    const { app, orgId, environmentUid } = yield* oneMessage
    const real = yield* Clock.Clock
    const ahead = Layer.succeed(Clock.Clock, {
      ...real,
      sleep: (duration) => real.sleep(duration),
      currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe() + 3_600_000,
      currentTimeMillis: Effect.map(real.currentTimeMillis, (now) => now + 3_600_000),
      currentTimeNanosUnsafe: () => real.currentTimeNanosUnsafe(),
      currentTimeNanos: real.currentTimeNanos
    })
    yield* Layer.build(Layer.fresh(consume.layer)).pipe(Effect.provide(ahead))
    yield* eventually(
      "the app is called",
      Effect.sync(() => app.batches.length > 0)
    )
    const [batch] = app.batches
    if (batch === undefined) assert.fail("nothing came")
    const { secrets } = yield* (yield* Invocations).target(orgId, environmentUid)
    const headers = {
      "webhook-id": String(batch.headers["webhook-id"]),
      "webhook-timestamp": String(batch.headers["webhook-timestamp"]),
      "webhook-signature": String(batch.headers["webhook-signature"])
    }
    // The library refuses what is more than five minutes off.
    new Webhook(secrets.map(Redacted.value)[0] ?? "").verify(batch.raw, headers)
  }).pipe(Effect.scoped, Effect.provide(services))
)
