import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const projects = "/v1/orgs/main/projects"
const base = `${projects}/shop/queues`

/** A creation answers after some seconds in any case. */
const ready = Effect.fn(function* (made: Answer) {
  const { call } = yield* Plane
  assert.include(["provisioning", "ready"], made.body.status)
  const look = call("GET", `${base}/${made.body.id}`)
  return yield* eventually("it is ready", look, ({ body }): boolean => body.status === "ready")
})

const pointers = (answer: Answer) => answer.body.errors.map((error: { pointer: string }) => error.pointer)

layer(testPlane(), { excludeTestServices: true })("queues", (it) => {
  it.effect("are created, read, changed, published to, counted, purged and deleted", () =>
    Effect.gen(function* () {
      const { call, session, sql } = yield* Plane
      assert.strictEqual(
        (yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })).status,
        201
      )
      const dead = yield* call("POST", base, { body: { name: "dead" } })
      assert.deepStrictEqual([dead.status, dead.body.consumer], [201, null])
      yield* ready(dead)
      const created = yield* call("POST", base, {
        body: { name: "jobs", deadLetterQueue: "dead", consumer: { path: "/jobs", maxBatchSize: 5 } }
      })
      assert.strictEqual(created.status, 201)
      assert.deepStrictEqual(created.body.consumer, {
        path: "/jobs",
        maxBatchSize: 5,
        maxBatchWaitSeconds: 0,
        maxRetries: 3,
        retryDelaySeconds: 30,
        maxConcurrency: null
      })
      assert.strictEqual(created.body.retentionSeconds, 345_600)
      const one = `${base}/${created.body.id}`
      const listed = yield* call("GET", base)
      assert.deepStrictEqual(
        listed.body.map(({ name }: { name: string }) => name),
        ["dead", "jobs"]
      )
      const got = yield* ready(created)
      assert.deepStrictEqual(
        { ...got.body, updatedAt: "" },
        { ...created.body, status: "ready", updatedAt: "" }
      )
      // The engine's reports give it a new revision as well: read and repeat.
      const pause = Effect.gen(function* () {
        const headers = { "if-match": (yield* call("GET", one)).headers.get("etag") ?? "" }
        return yield* call("PATCH", one, { body: { paused: true }, headers })
      })
      const paused = yield* eventually("nobody came between", pause, ({ status }) => status !== 412)
      assert.deepStrictEqual([paused.status, paused.body.paused], [200, true])
      const bare = yield* call("PATCH", one, { body: { consumer: null } })
      assert.deepStrictEqual([bare.body.consumer, bare.body.paused], [null, true])

      const published = yield* call("POST", `${one}/messages`, {
        body: {
          messages: [
            { body: { n: 1 } },
            { body: "two", delaySeconds: 60 },
            { body: null, idempotencyKey: "k" },
            { body: null, idempotencyKey: "k" }
          ]
        }
      })
      assert.strictEqual(published.status, 202)
      const { messages } = published.body
      assert.deepStrictEqual(
        messages.map(({ duplicate }: { duplicate: boolean }) => duplicate),
        [false, false, false, true]
      )
      assert.strictEqual(messages[3].id, messages[2].id)
      const again = yield* call("POST", `${one}/messages`, {
        body: { messages: [{ body: null, idempotencyKey: "k" }, { body: 3 }] }
      })
      assert.deepStrictEqual(again.body.messages[0], { id: messages[2].id, duplicate: true })
      assert.isFalse(again.body.messages[1].duplicate)
      const stats = yield* call("GET", `${one}/stats`)
      assert.strictEqual(stats.status, 200)
      const { oldestMessageAt, oldestMessageAgeSeconds, ...counts } = stats.body
      assert.deepStrictEqual(counts, { backlog: 4, delayed: 1, inFlight: 0, failed: 0, inDeadLetterQueue: 0 })
      assert.isNotNaN(Date.parse(oldestMessageAt))
      assert.isAtLeast(oldestMessageAgeSeconds, 0)
      // The key outlives its message.
      const purged = yield* call("POST", `${one}/purge`)
      assert.deepStrictEqual([purged.status, purged.body], [200, { purged: 4 }])
      const late = yield* call("POST", `${one}/messages`, {
        body: { messages: [{ body: 1, idempotencyKey: "k" }] }
      })
      assert.isTrue(late.body.messages[0].duplicate)
      assert.strictEqual((yield* call("GET", `${one}/stats`)).body.backlog, 0)
      const redriven = yield* call("POST", `${one}/redrive`, { body: {} })
      assert.deepStrictEqual([redriven.status, redriven.body], [200, { redriven: 0 }])
      const other = yield* call("POST", `${one}/messages`, {
        token: session,
        body: { messages: [{ body: 2 }] }
      })
      assert.strictEqual(other.status, 202)
      // Of publications one an hour for each who.
      const audited = yield* sql(
        `select operation from audit_log where resource = '${created.body.id}' order by at`
      )
      assert.deepStrictEqual(
        audited.map(({ operation }) => operation),
        [
          "queues.create",
          "queues.update",
          "queues.update",
          "queues.publish",
          "queues.purge",
          "queues.redrive",
          "queues.publish"
        ]
      )

      const used = yield* call("DELETE", `${base}/${dead.body.id}`, { token: session })
      assert.deepStrictEqual([used.status, used.body.code], [409, "in_use"])
      yield* call("POST", `${one}/messages`, { body: { messages: [{ body: 1 }] } })
      const byKey = yield* call("DELETE", one)
      assert.strictEqual(byKey.status, 403)
      const seen = (yield* call("GET", one)).headers.get("etag") ?? ""
      yield* call("PATCH", one, { body: { retentionSeconds: 7_200 } })
      const outdated = yield* call("DELETE", one, { token: session, headers: { "if-match": seen } })
      assert.deepStrictEqual([outdated.status, outdated.body.code], [412, "revision_mismatch"])
      assert.strictEqual((yield* call("GET", one)).status, 200)
      const remove = Effect.gen(function* () {
        const current = (yield* call("GET", one)).headers.get("etag") ?? ""
        return yield* call("DELETE", one, { token: session, headers: { "if-match": current } })
      })
      const deleted = yield* eventually("nobody came between", remove, ({ status }) => status !== 412)
      assert.strictEqual(deleted.status, 200)
      yield* eventually("it is gone", call("GET", one), ({ status }) => status === 404)
      for (const table of ["queue", "queue_slot", "queue_message", "queue_key"]) {
        const column = table === "queue" ? "uid" : "queue_uid"
        const left = yield* sql(`select 1 from ${table} where ${column} = '${created.body.id}'`)
        assert.deepStrictEqual(left, [], table)
      }
    })
  )

  it.effect("answer each refusal that is specified", () =>
    Effect.gen(function* () {
      const { call, tenant, session, sql } = yield* Plane
      yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
      const made = yield* call("POST", base, { body: { name: "first" } })
      assert.strictEqual(made.status, 201)
      const one = `${base}/${made.body.id}`
      const wrong = yield* call("POST", base, {
        body: { name: "X", retentionSeconds: 1, consumer: { path: "//evil", maxBatchSize: 0 }, colour: 1 }
      })
      assert.strictEqual(wrong.status, 422)
      assert.sameMembers(pointers(wrong), [
        "/name",
        "/retentionSeconds",
        "/consumer/path",
        "/consumer/maxBatchSize",
        "/colour"
      ])
      const missing = yield* call("POST", base, { body: { name: "next", deadLetterQueue: "nowhere" } })
      assert.deepStrictEqual([missing.status, pointers(missing)], [422, ["/deadLetterQueue"]])
      const itself = yield* call("PATCH", one, { body: { deadLetterQueue: "first" } })
      assert.deepStrictEqual([itself.status, pointers(itself)], [422, ["/deadLetterQueue"]])
      const second = yield* call("POST", base, { body: { name: "second", deadLetterQueue: "first" } })
      assert.strictEqual(second.status, 201)
      const circle = yield* call("PATCH", one, { body: { deadLetterQueue: "second" } })
      assert.deepStrictEqual([circle.status, pointers(circle)], [422, ["/deadLetterQueue"]])

      const publish = (body: unknown, token?: string) =>
        call("POST", `${one}/messages`, token === undefined ? { body } : { body, token })
      assert.deepStrictEqual(pointers(yield* publish({ messages: [] })), ["/messages"])
      const long = yield* publish({ messages: [{ body: 1 }, { body: "x".repeat(122_880) }] })
      assert.deepStrictEqual([long.status, pointers(long)], [422, ["/messages/1/body"]])
      const many = yield* publish({ messages: Array.from({ length: 1_001 }, () => ({ body: 1 })) })
      assert.strictEqual(many.status, 422)
      const huge = yield* publish({ messages: [{ body: "x".repeat(5_000_000) }] })
      assert.strictEqual(huge.status, 413)
      const nul = yield* publish({ messages: [{ body: "a\u0000b" }] })
      assert.strictEqual(nul.status, 422)
      const part = `'${made.body.id}', 99, 1000000, 0 from queue where uid = '${made.body.id}'`
      yield* sql(`insert into queue_backlog select org_id, ${part}`)
      const full = yield* publish({ messages: [{ body: 1 }] })
      assert.deepStrictEqual([full.status, full.body.code], [409, "queue_full"])
      assert.include(full.body.detail, "The queue may hold 1000000 messages")
      yield* sql(`delete from queue_backlog where part = 99`)
      assert.strictEqual((yield* publish({ messages: [{ body: 1 }] })).status, 202)

      const other = yield* tenant()
      const theirs = `/v1/orgs/${other.slug}/projects`
      yield* call("POST", theirs, { token: other.adminKey, body: { name: "Shop", slug: "shop" } })
      const ours = yield* call("POST", `${theirs}/shop/queues`, {
        token: other.adminKey,
        body: { name: "jobs" }
      })
      const mine = `${theirs}/shop/queues/${ours.body.id}`
      const asMember = { token: other.memberKey }
      // Apps publish with the weakest key there is.
      const published = yield* call("POST", `${mine}/messages`, {
        ...asMember,
        body: { messages: [{ body: 1 }] }
      })
      assert.strictEqual(published.status, 202)
      yield* sql(`update organization set billing_status = 'past_due' where id = '${other.id}'`)
      const unpaid = yield* call("POST", `${mine}/messages`, {
        token: other.adminKey,
        body: { messages: [{ body: 1 }] }
      })
      assert.strictEqual(unpaid.status, 402)

      const leaving = yield* call("DELETE", `${base}/${second.body.id}`, { token: session })
      assert.strictEqual(leaving.status, 200)
      const tooLate = yield* call("POST", `${base}/${second.body.id}/messages`, {
        body: { messages: [{ body: 1 }] }
      })
      assert.include([404, 409], tooLate.status)
    })
  )
})
