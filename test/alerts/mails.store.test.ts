import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { handOver, mostHourly } from "#src/alerts/hand-over.ts"
import { mailPlace } from "#src/mail/Mail.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { place, round, stack } from "./world.ts"

/** A place with a database that is full, and people by role. */
const full = Effect.gen(function* () {
  const here = yield* place
  const uid = yield* here.resource("Database", "main")
  const person = Effect.fn(function* (email: string, role: "owner" | "admin" | "member" | null) {
    const id = uuid()
    yield* here.sql`insert into account (id, email, name) values (${id}, ${email}, 'Somebody')`
    if (role !== null)
      yield* here.sql`insert into member (org_id, id, user_id, role) values (${here.orgId}, ${uuid()}, ${id}, ${role})`
    return id
  })
  const outbox = Effect.gen(function* () {
    const ring = yield* KeyRing
    const rows = yield* here.sql<{
      readonly id: string
      readonly recipient: string
      readonly template: string
      readonly key_id: string
      readonly sealed: Uint8Array
    }>`
      select id, recipient, template, key_id, sealed from mail_outbox where org_id = ${here.orgId}
      order by template, recipient`
    return yield* Effect.forEach(rows, ({ id, recipient, template, key_id, sealed }) =>
      Effect.map(ring.open(mailPlace(id), { keyId: key_id, bytes: sealed }), (content) => ({
        recipient,
        template,
        content: Redacted.value(content)
      }))
    )
  })
  const deliveries = (alert: string) =>
    Effect.map(here.history(alert), (entries) => entries.flatMap(({ deliveries }) => deliveries))
  const mail = (...destinations: ReadonlyArray<string | null>) =>
    here.alert(
      { cooldownSeconds: 300, channels: destinations.map((destination) => ({ kind: "mail", destination })) },
      "Disk\nfull"
    )
  yield* here.measure(uid, { "storage.capacity": 97.25 })
  return { ...here, uid, person, outbox, deliveries, mail }
})

layer(stack, { excludeTestServices: true })("mails of alerts", (it) => {
  it.effect("go to members by their address, and to owners and admins where none is named", () =>
    Effect.gen(function* () {
      const here = yield* full
      const suffix = `${uuid().slice(-12)}.example`
      const address = (name: string) => `${name}@${suffix}`
      yield* here.person(address("owner"), "owner")
      yield* here.person(address("admin"), "admin")
      yield* here.person(address("member"), "member")
      yield* here.person(address("stranger"), null)
      const alert = yield* here.mail(null, address("MEMBER"), address("stranger"), address("nobody"))
      yield* round()
      assert.deepStrictEqual(
        (yield* here.deliveries(alert)).map(({ state }) => state),
        ["waiting", "waiting", "waiting", "waiting"]
      )
      yield* handOver
      const sent = yield* here.outbox
      assert.deepStrictEqual(
        sent.map(({ recipient }) => recipient),
        [address("admin"), address("member"), address("owner")]
      )
      const { subject, text } = JSON.parse(sent[0]?.content ?? "")
      assert.strictEqual(subject, "[warning] Disk full fires in shop")
      assert.include(
        text,
        "storage.capacity of Database main of production is 97.25 %; the alert is about values at or above 85 %."
      )
      assert.sameDeepMembers(
        [...(yield* here.deliveries(alert))],
        [
          { channel: "mail", destination: null, state: "waiting" },
          { channel: "mail", destination: address("MEMBER"), state: "waiting" },
          { channel: "mail", destination: address("stranger"), state: "undeliverable" },
          { channel: "mail", destination: address("nobody"), state: "undeliverable" }
        ]
      )
      yield* here.sql`update mail_outbox set state = 'sent', sealed = null, key_id = null where recipient = ${address("member")}`
      yield* here.sql`update mail_outbox set state = 'failed', sealed = null, key_id = null where recipient = ${address("owner")}`
      yield* here.sql`update mail_outbox set state = 'sent', sealed = null, key_id = null where recipient = ${address("admin")}`
      assert.deepStrictEqual(
        (yield* here.deliveries(alert)).map(({ destination, state }) => [destination, state]).slice(0, 2),
        [
          [null, "failed"],
          [address("MEMBER"), "delivered"]
        ]
      )
    })
  )

  it.effect("each is handed over once, however many do so, and a resolution says that it is over", () =>
    Effect.gen(function* () {
      const here = yield* full
      const email = `owner@${uuid().slice(-12)}.example`
      yield* here.person(email, "owner")
      const alert = yield* here.mail(email)
      yield* round()
      yield* here.measure(here.uid, { "storage.capacity": 1 })
      yield* round()
      yield* round(60)
      yield* Effect.forEach([1, 2, 3, 4], () => handOver, { concurrency: "unbounded" })
      const sent = yield* here.outbox
      assert.deepStrictEqual(
        sent.map(({ template }) => template),
        ["alert_firing", "alert_resolved"]
      )
      assert.include(sent[1]?.content, "Its condition has not held for a while.")
      assert.lengthOf(yield* here.deliveries(alert), 2)
    })
  )

  it.effect("are not sent to who left meanwhile", () =>
    Effect.gen(function* () {
      const here = yield* full
      const email = `gone@${uuid().slice(-12)}.example`
      const userId = yield* here.person(email, "member")
      const alert = yield* here.mail(email)
      yield* round()
      yield* here.sql`delete from member where user_id = ${userId}`
      yield* handOver
      assert.deepStrictEqual(yield* here.outbox, [])
      assert.deepStrictEqual(
        (yield* here.deliveries(alert)).map(({ state }) => state),
        ["undeliverable"]
      )
    })
  )

  it.effect("are one to each person, however many destinations mean the same", () =>
    Effect.gen(function* () {
      const here = yield* full
      const email = `Owner@${uuid().slice(-12)}.example`
      yield* here.person(email, "owner")
      const alert = yield* here.mail(null, email.toUpperCase())
      yield* round()
      yield* handOver
      assert.deepStrictEqual(
        (yield* here.outbox).map(({ recipient }) => recipient),
        [email]
      )
      yield* here.sql`update mail_outbox set state = 'sent', sealed = null, key_id = null where recipient = ${email}`
      assert.deepStrictEqual(
        (yield* here.deliveries(alert)).map(({ destination, state }) => [destination, state]),
        [
          [null, "delivered"],
          [email.toUpperCase(), "delivered"]
        ]
      )
    })
  )

  it.effect(
    "are withheld once an organization has sent as many as it may in an hour, and the history says so",
    () =>
      Effect.gen(function* () {
        const here = yield* full
        const email = `owner@${uuid().slice(-12)}.example`
        yield* here.person(email, "owner")
        const earlier = (minutes: number, sent: number) => here.sql`
        insert into alert_mail (org_id, event_id, type, project_id, destinations, data, handed_at, sent, mails)
        values (${here.orgId}, ${uuid()}, 'alert.firing', ${here.projectId}, '{null}', '{}',
          now() - make_interval(mins => ${minutes}::int), ${sent}::int, '[[]]')`
        yield* earlier(61, mostHourly)
        yield* earlier(10, mostHourly - 1)
        const alerts = [yield* here.mail(null), yield* here.mail(null)]
        yield* round()
        yield* handOver
        assert.lengthOf(yield* here.outbox, 1)
        const states = yield* Effect.forEach(alerts, (alert) =>
          Effect.map(here.deliveries(alert), (all) => all.map(({ state }) => state))
        )
        assert.sameDeepMembers(states, [["waiting"], ["withheld"]])
      })
  )
})
