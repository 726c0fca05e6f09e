import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { Db, transaction } from "#src/store/Db.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { DeliveryLog } from "#src/webhooks/DeliveryLog.ts"
import { emission } from "#src/webhooks/events.ts"
import { WebhookDeliveries } from "#src/webhooks/WebhookDeliveries.ts"
import { Webhooks } from "#src/webhooks/Webhooks.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { receiver } from "#test/outbound/receiver.ts"
import { actor, makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { verify } from "../../examples/webhook-receiver/verify.ts"
import {
  deliverer,
  fixture,
  happens,
  hasten,
  listener,
  stored,
  subscribe,
  until,
  verified
} from "./setting.ts"

const anyRoom = { most: 1000, orgs: makeFairShare(10_000).rooms(), running: [] }

layer(fixture, { excludeTestServices: true, timeout: "3 minutes" })("deliveries", (it) => {
  it.effect("tell whoever wants to know, and nobody else, in a form that libraries verify", () =>
    Effect.gen(function* () {
      yield* deliverer
      const wanting = yield* listener()
      const other = yield* receiver()
      yield* subscribe(wanting.orgId, other.url(), ["deploy.failed"])
      const foreign = yield* listener()
      yield* happens(wanting.orgId, "budget.alert", { spent: 80, text: "größer €" })
      yield* until(
        Effect.sync(() => wanting.received),
        (received) => received.length > 0
      )
      const [got] = wanting.received
      if (got === undefined) assert.fail("nothing came")
      const body = verified(wanting.secret, got)
      assert.deepStrictEqual(Object.keys(body), [
        "id",
        "type",
        "createdAt",
        "organizationId",
        "projectId",
        "data"
      ])
      assert.deepStrictEqual(
        [body.type, body.organizationId, body.projectId, body.data],
        ["budget.alert", wanting.orgId, null, { spent: 80, text: "größer €" }]
      )
      assert.strictEqual(got.headers["webhook-id"], body.id)
      assert.strictEqual(got.headers["content-type"], "application/json")
      // The helper that ships with the example.
      assert.deepStrictEqual(verify(wanting.secret, got.headers, got.body), body)
      assert.throws(() => verify(foreign.secret, got.headers, got.body))
      assert.throws(() => verify(wanting.secret, got.headers, got.body.replace("80", "81")))
      assert.throws(() => verify(wanting.secret, got.headers, got.body, Date.now() + 301_000))
      const [row] = yield* until(stored(wanting.id), ([one]) => one?.state === "delivered")
      assert.deepStrictEqual(
        row?.attempts.map(({ statusCode, error }) => [statusCode, error]),
        [[204, null]]
      )
      assert.lengthOf(other.received, 0)
      assert.lengthOf(foreign.received, 0)
    })
  )

  it.effect("are stored with what caused them, or not at all", () =>
    Effect.gen(function* () {
      const { engine: sql, api } = yield* Db
      const one = yield* listener()
      const event = { orgId: one.orgId, projectId: null, type: "budget.alert", data: {} } as const
      yield* sql`with ${emission(sql, event, sql`false`)} select 1`
      yield* Effect.ignore(
        transaction(sql, Effect.andThen(happens(one.orgId), Effect.fail("the cause did not come about")))
      )
      assert.lengthOf(yield* stored(one.id), 0)
      // Requests are under row-level security; emitting works there as well.
      yield* api`with ${emission(api, event)} select 1`
      assert.lengthOf(yield* stored(one.id), 1)
      // Nobody wants it: nothing is stored.
      yield* happens(one.orgId, "deploy.failed")
      const [events] = yield* sql<{ readonly count: number }>`
        select count(*)::int as count from webhook_event where org_id = ${one.orgId}`
      assert.strictEqual(events?.count, 1)
    })
  )

  campaign(
    it.effect,
    "webhook-refusals",
    "deliveries arrive at least once each at a receiver that fails one time in three, from two processes",
    {},
    Effect.fnUntraced(function* ({ seed, full }) {
      const random = new Seeded(seed)
      const events = full ? 1_000 : 200
      const accepted = new Set<number>()
      let refusals = 0
      const refused = new Map<number, number>()
      const one = yield* listener((request, response) => {
        const { n } = JSON.parse(request.body).data
        // Never so often that chance alone takes all the tries that an event has.
        const before = refused.get(n) ?? 0
        if (before < 5 && random.chance(0.3)) {
          refused.set(n, before + 1)
          refusals++
          // It fails in every way there is.
          if (random.chance(0.3)) response.socket?.destroy()
          else response.writeHead(random.chance(0.5) ? 500 : 302, { location: "/" }).end()
          return
        }
        accepted.add(n)
        response.writeHead(200).end("ok")
      })
      for (let n = 0; n < events; n++) yield* happens(one.orgId, "budget.alert", { n })
      yield* deliverer
      yield* deliverer
      const done = yield* until(Effect.andThen(hasten, stored(one.id)), (rows) =>
        rows.every(({ state }) => state !== "waiting")
      )
      assert.lengthOf(done, events)
      assert.isTrue(done.every(({ state }) => state === "delivered"))
      assert.strictEqual(accepted.size, events)
      assert.isAbove(refusals, events / 10)
      for (const got of one.received) verified(one.secret, got)
      // Every refusal is on record. A connection that was cut is tried again at once, without a record.
      const failures = done.flatMap(({ attempts }) => attempts.filter(({ error }) => error !== null))
      assert.isAtMost(failures.length, refusals)
      assert.isAbove(failures.length, refusals / 2)
    })
  )

  it.effect("to one endpoint never wait for another that does not answer", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const hanging = yield* listener(() => {})
      const quick = yield* listener()
      yield* Effect.forEach(Array.from({ length: 300 }), () => happens(hanging.orgId))
      yield* deliverer
      yield* until(
        Effect.sync(() => hanging.received),
        (received) => received.length > 0
      )
      yield* Effect.forEach(Array.from({ length: 40 }), () => happens(quick.orgId))
      yield* until(stored(quick.id), (rows) => rows.every(({ state }) => state === "delivered"))
      assert.lengthOf(quick.received, 40)
      // No try of the other had even ended then, and there are only a few at a time.
      const [settled] = yield* sql<{ readonly at: Date }>`
        select max(settled_at) as at from webhook_delivery where webhook_id = ${quick.id}::uuid`
      for (const { attempts } of yield* stored(hanging.id))
        for (const { startedAt, durationMs } of attempts)
          assert.isAbove(
            Date.parse(startedAt) + durationMs,
            settled?.at.getTime() ?? Number.POSITIVE_INFINITY
          )
      const [under] = yield* sql<{ readonly way: number }>`select count(*)::int as way from webhook_delivery
        where webhook_id = ${hanging.id}::uuid and lease_token is not null`
      assert.isTrue((under?.way ?? 0) > 0 && (under?.way ?? 0) <= 8, String(under?.way))
    })
  )

  it.effect(
    "are tried again on the schedule, later where the endpoint asks for it, and given up in the end",
    () =>
      Effect.gen(function* () {
        yield* deliverer
        let retryAfter: string | undefined
        const one = yield* listener((_, response) => {
          response.writeHead(503, retryAfter === undefined ? {} : { "retry-after": retryAfter }).end()
        })
        const after = (failed: number) =>
          Effect.map(
            until(stored(one.id), ([row]) => row?.attempts.length === failed),
            ([row]) => row ?? assert.fail("it is gone")
          )
        yield* happens(one.orgId)
        const first = yield* after(1)
        assert.isAtMost(first.dueIn, 5.5)
        assert.deepStrictEqual(
          first.attempts.map(({ statusCode, error }) => [statusCode, error]),
          [[503, "It answered 503 instead of 2xx"]]
        )
        retryAfter = "1000"
        yield* hasten
        const second = yield* after(2)
        assert.isAbove(second.dueIn, 900)
        assert.isBelow(second.dueIn, 1001)
        retryAfter = undefined
        for (let failed = 3; failed <= 10; failed++) {
          yield* hasten
          yield* after(failed)
        }
        const [last] = yield* stored(one.id)
        assert.strictEqual(last?.state, "failed")
        assert.lengthOf(one.received, 10)
        // Each try says the same under the same id, signed anew.
        assert.strictEqual(new Set(one.received.map(({ body }) => body)).size, 1)
        assert.strictEqual(new Set(one.received.map(({ headers }) => headers["webhook-id"])).size, 1)
        for (const got of one.received) verified(one.secret, got)

        // Somebody repaired it, and asks for what was given up.
        const list = yield* DeliveryLog
        const again = yield* list.redeliver(one.orgId, one.id, last?.id ?? "", uuid(), actor)
        assert.isTrue(Option.isSome(again))
        yield* until(
          Effect.sync(() => one.received),
          (received) => received.length >= 11
        )
        assert.strictEqual(one.received[10]?.body, one.received[0]?.body)
      })
  )

  const admins = (orgId: string) =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      for (const role of ["owner", "admin", "member"]) {
        const id = uuid()
        yield* sql`insert into account (id, email, name) values (${id}, ${`${role}-${id}@example.test`}, ${role})`
        yield* sql`insert into member (org_id, id, user_id, role) values (${orgId}, ${uuid()}, ${id}, ${role})`
      }
    })
  const told = (orgId: string) =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const rows = yield* sql<{ readonly recipient: string }>`
        select recipient from mail_outbox where org_id = ${orgId} and template = 'webhook_disabled' order by recipient`
      return rows.map(({ recipient }) => recipient.split("-")[0])
    })
  const endpoint = (orgId: string) =>
    Effect.gen(function* () {
      const [found] = yield* (yield* Webhooks).list(orgId)
      return found ?? assert.fail("there is no endpoint")
    })

  it.effect("end where an endpoint says that it is gone, and its admins are told", () =>
    Effect.gen(function* () {
      const one = yield* listener((_, response) => void response.writeHead(410).end())
      yield* admins(one.orgId)
      yield* happens(one.orgId)
      yield* until(stored(one.id), (rows) => rows.length === 1)
      yield* deliverer
      yield* until(endpoint(one.orgId), ({ disabledAt }) => disabledAt !== null)
      assert.match((yield* endpoint(one.orgId)).disabledReason ?? "", /410/)
      assert.deepStrictEqual(
        (yield* stored(one.id)).map(({ state }) => state),
        ["failed"]
      )
      assert.deepStrictEqual(yield* told(one.orgId), ["admin", "owner"])
      yield* happens(one.orgId)
      assert.lengthOf(yield* stored(one.id), 1, "nothing is stored for one that is disabled")
    })
  )

  it.effect("end where nothing arrived for five days, and not for what has just begun to fail", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      let status = 500
      // It asks to be left alone for so long that nothing is tried again but what the test makes due.
      const one = yield* listener(
        (_, response) => void response.writeHead(status, { "retry-after": "3600" }).end()
      )
      yield* admins(one.orgId)
      yield* deliverer
      const since = (days: number) =>
        sql`update webhook set failing_since = now() - make_interval(days => ${days}::int) where id = ${one.id}::uuid`
      yield* happens(one.orgId)
      yield* until(stored(one.id), ([row]) => row?.attempts.length === 1)
      assert.isNotNull((yield* endpoint(one.orgId)).failingSince)
      // Something arrives: patience begins anew.
      status = 200
      yield* since(9)
      yield* hasten
      yield* until(stored(one.id), ([row]) => row?.state === "delivered")
      assert.isNull((yield* endpoint(one.orgId)).failingSince)

      status = 500
      yield* happens(one.orgId)
      yield* until(stored(one.id), (rows) => rows[1]?.attempts.length === 1)
      yield* since(4)
      yield* hasten
      yield* until(stored(one.id), (rows) => rows[1]?.attempts.length === 2)
      assert.isNull((yield* endpoint(one.orgId)).disabledAt)
      yield* since(5)
      yield* sql`update webhook_delivery set due_at = now() + interval '1 day' where webhook_id = ${one.id}::uuid`
      yield* happens(one.orgId)
      // What is new is tried for hours before it decides.
      for (const tries of [1, 2, 3, 4]) {
        yield* until(stored(one.id), (rows) => rows[2]?.attempts.length === tries)
        assert.isNull((yield* endpoint(one.orgId)).disabledAt)
        yield* sql`update webhook_delivery set due_at = now()
          where webhook_id = ${one.id}::uuid and jsonb_array_length(attempts) = ${tries}`
        yield* sql`select pg_notify('svc_webhook', '')`
      }
      yield* until(endpoint(one.orgId), ({ disabledAt }) => disabledAt !== null)
      const states = (yield* until(stored(one.id), (rows) =>
        rows.every(({ state }) => state !== "waiting")
      )).map(({ state }) => state)
      assert.deepStrictEqual(states, ["delivered", "failed", "failed"])
      assert.deepStrictEqual(yield* told(one.orgId), ["admin", "owner"])
    })
  )

  it.effect("are signed with both secrets while one is replaced, and with one before and after", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      yield* deliverer
      const one = yield* listener()
      const webhooks = yield* Webhooks
      const next = Effect.gen(function* () {
        const before = one.received.length
        yield* happens(one.orgId)
        yield* until(
          Effect.sync(() => one.received),
          (received) => received.length > before
        )
        return one.received[before] ?? assert.fail("nothing came")
      })
      const rotated = yield* webhooks.rotate(one.orgId, one.id, 3600, actor, newReservation(false))
      if (Option.isNone(rotated)) assert.fail("there is no endpoint")
      const fresh = Redacted.value(rotated.value.secret)
      const both = yield* next
      verified(one.secret, both)
      verified(fresh, both)
      verify(one.secret, both.headers, both.body)
      verify(fresh, both.headers, both.body)
      yield* sql`update webhook set previous_until = now() where id = ${one.id}::uuid`
      const alone = yield* next
      verified(fresh, alone)
      assert.throws(() => verified(one.secret, alone))
      // At once: for a secret that somebody else knows.
      const leaked = yield* webhooks.rotate(one.orgId, one.id, 0, actor, newReservation(false))
      if (Option.isNone(leaked)) assert.fail("there is no endpoint")
      const safe = yield* next
      verified(Redacted.value(leaked.value.secret), safe)
      assert.throws(() => verified(fresh, safe))
    })
  )

  it.effect("stop when their endpoint is deleted", () =>
    Effect.gen(function* () {
      const one = yield* listener(
        (_, response) => void response.writeHead(500, { "retry-after": "3600" }).end()
      )
      yield* deliverer
      yield* happens(one.orgId)
      yield* until(stored(one.id), ([row]) => row?.attempts.length === 1)
      assert.isTrue(yield* (yield* Webhooks).remove(one.orgId, one.id, actor))
      const sent = one.received.length
      yield* hasten
      yield* happens(one.orgId)
      const probe = yield* listener()
      yield* happens(probe.orgId)
      yield* until(
        Effect.sync(() => probe.received),
        (received) => received.length === 1
      )
      assert.lengthOf(one.received, sent)
    })
  )

  it.effect(
    "are taken over from a process that ended, at once when it stopped and by their lease when it vanished",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        let answers = false
        const one = yield* listener((_, response) => {
          if (answers) response.writeHead(200).end()
        })
        yield* happens(one.orgId)
        const scope = yield* Scope.make()
        yield* Scope.provide(deliverer, scope)
        yield* until(
          Effect.sync(() => one.received),
          (received) => received.length === 1
        )
        yield* Scope.close(scope, Exit.void)
        const [givenBack] = yield* stored(one.id)
        assert.isAtMost(givenBack?.dueIn ?? 60, 0)

        // Another one takes it and is never heard of again.
        const deliveries = yield* WebhookDeliveries
        const claimed = yield* deliveries.claim(anyRoom)
        const [mine] = claimed.filter(({ webhookId }) => webhookId === one.id)
        if (mine === undefined) assert.fail("it was not due")
        for (const other of claimed) if (other !== mine) yield* deliveries.giveBack(other, 3600)
        assert.lengthOf(
          (yield* deliveries.claim(anyRoom)).filter(({ webhookId }) => webhookId === one.id),
          0
        )
        yield* sql`update webhook_delivery set due_at = now() where id = ${mine.id}::uuid`
        answers = true
        yield* deliverer
        yield* until(stored(one.id), ([row]) => row?.state === "delivered")
        // And if it wakes up after all, it changes nothing.
        const attempt = { startedAt: new Date().toISOString(), durationMs: 1, statusCode: 500, error: "late" }
        yield* deliveries.failed(mine, attempt, 5)
        const [row] = yield* stored(one.id)
        assert.deepStrictEqual([row?.state, row?.attempts.length], ["delivered", 1])
        assert.isNull((yield* endpoint(one.orgId)).failingSince)
      })
  )

  it.effect("of an organization do not show or go to another", () =>
    Effect.gen(function* () {
      const one = yield* listener()
      const other = yield* makeOrganization()
      yield* happens(one.orgId)
      const webhooks = yield* Webhooks
      const list = yield* DeliveryLog
      const [delivery] = yield* stored(one.id)
      assert.lengthOf(yield* webhooks.list(other.id), 0)
      assert.lengthOf(yield* list.list(other.id, one.id, {}, 10), 0)
      assert.isTrue(Option.isNone(yield* list.redeliver(other.id, one.id, delivery?.id ?? "", uuid(), actor)))
      assert.strictEqual((yield* Effect.flip(list.test(other.id, one.id, uuid(), actor)))._tag, "Refused")
      assert.isFalse(yield* webhooks.remove(other.id, one.id, actor))
      assert.isTrue(Option.isNone(yield* webhooks.rotate(other.id, one.id, 0, actor, newReservation(false))))
      assert.isTrue(Option.isNone(yield* webhooks.update(other.id, one.id, { enabled: false }, actor)))
    })
  )
})
