import * as http from "node:http"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"

const projects = "/v1/orgs/main/projects"
const keyed = (key: string) => ({ "idempotency-key": key })

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("idempotency keys", (it) => {
  it.effect(
    "a request whose caller hangs up is carried through, and its answer waits for the repetition",
    () =>
      Effect.gen(function* () {
        const { call, url, apiKey, sql } = yield* Plane
        yield* call("POST", projects, { body: { name: "H", slug: "hangup" } })
        const path = `${projects}/hangup/caches`
        const body = JSON.stringify({ name: "one", sku: "cache-n1", region: "local" })
        const request = http.request(`${url}${path}`, {
          method: "POST",
          headers: {
            authorization: `Bearer ${apiKey}`,
            "content-type": "application/json",
            "content-length": body.length,
            ...keyed("hang-up")
          }
        })
        request.on("error", () => undefined)
        request.end(body)
        // Before that it is nobody's request yet.
        yield* sql("select from idempotency where key = 'hang-up'").pipe(
          Effect.repeat({ until: (rows) => rows.length > 0 }),
          Effect.timeout("1 minute")
        )
        request.destroy()
        const again = yield* call("POST", path, { raw: body, headers: keyed("hang-up") }).pipe(
          Effect.repeat({ until: ({ status }: Answer): boolean => status !== 409 }),
          Effect.timeout("2 minutes")
        )
        assert.strictEqual(again.status, 201)
        assert.strictEqual(again.headers.get("idempotency-replayed"), "true")
        assert.match(again.body.connectionString, /^rediss:/)
        assert.strictEqual((yield* call("GET", path)).body.length, 1)
      })
  )

  it.effect("however early callers hang up, no key stays taken by a request that nobody carries out", () =>
    Effect.gen(function* () {
      const { url, apiKey, sql } = yield* Plane
      const hangUp = (i: number) =>
        Effect.promise(
          () =>
            new Promise<void>((resolve) => {
              const body = JSON.stringify({ name: "P", slug: `early-${i}` })
              const request = http.request(`${url}${projects}`, {
                method: "POST",
                headers: {
                  authorization: `Bearer ${apiKey}`,
                  "content-type": "application/json",
                  "content-length": body.length,
                  ...keyed(`early-${i}`)
                }
              })
              request.on("error", () => resolve())
              // On any machine some are too early for their request and some come after its answer.
              request.end(body, () => setTimeout(() => request.destroy(), 2 ** (Math.random() * 11)))
              request.on("response", (response) => {
                response.resume()
                resolve()
              })
            })
        )
      yield* Effect.forEach(
        Array.from({ length: 200 }, (_, i) => i),
        hangUp,
        { concurrency: 8, discard: true }
      )
      const taken = Effect.map(
        sql("select count(*)::int as n from idempotency where key like 'early-%' and status is null"),
        ([row]) => Number(row?.["n"])
      )
      yield* taken.pipe(
        Effect.tap(() => Effect.sleep("100 millis")),
        Effect.repeat({ until: (n) => n === 0 }),
        Effect.timeout("1 minute")
      )
      const [kept] = yield* sql("select count(*)::int as n from idempotency where key like 'early-%'")
      assert.isAbove(Number(kept?.["n"]), 0)
    })
  )

  it.effect("two requests at once with one key are carried out once", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const answers = yield* Effect.forEach(
        Array.from({ length: 8 }),
        () => call("POST", projects, { body: { name: "R", slug: "race" }, headers: keyed("race") }),
        { concurrency: "unbounded" }
      )
      const made = answers.filter(({ status }) => status === 201)
      assert.isNotEmpty(made)
      assert.strictEqual(new Set(made.map(({ text }) => text)).size, 1)
      for (const answer of answers) {
        if (answer.status !== 201) {
          assert.deepStrictEqual([answer.status, answer.body.code], [409, "idempotency_key_in_flight"])
        }
      }
    })
  )

  it.effect("a key belongs to its credential and to one request", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      const headers = keyed("shared")
      const first = yield* call("POST", projects, { body: { name: "A", slug: "mine" }, headers })
      assert.strictEqual(first.status, 201)
      const other = yield* call("POST", projects, {
        token: session,
        body: { name: "B", slug: "theirs" },
        headers
      })
      assert.strictEqual(other.status, 201)
      const elsewhere = yield* call("POST", `${projects}/mine/environments`, {
        body: { name: "A", slug: "mine" },
        headers
      })
      assert.deepStrictEqual([elsewhere.status, elsewhere.body.code], [409, "idempotency_key_reused"])
    })
  )

  it.effect("a request that died unanswered blocks its key for a while and not for ever", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const send = call("POST", projects, { body: { name: "D", slug: "died" }, headers: keyed("died") })
      assert.strictEqual((yield* send).status, 201)
      // As a process leaves it that was killed in the middle.
      yield* sql("update idempotency set status = null, sealed = null, key_id = null where key = 'died'")
      const waiting = yield* send
      assert.deepStrictEqual([waiting.status, waiting.body.code], [409, "idempotency_key_in_flight"])
      yield* sql("update idempotency set created_at = now() - interval '10 minutes' where key = 'died'")
      assert.strictEqual((yield* send).body.code, "slug_taken")
    })
  )

  it.effect("a key lifts no limit of the body and excuses no fault", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const large = yield* call("POST", projects, {
        body: { name: "x".repeat(3_000_000), slug: "large" },
        headers: keyed("large")
      })
      assert.strictEqual(large.status, 413)
      const broken = yield* call("POST", projects, { raw: "{", headers: keyed("broken") })
      assert.deepStrictEqual([broken.status, broken.body.code], [400, "malformed_body"])
      for (const key of ["has space", "a".repeat(256), "ümlaut"]) {
        const answer = yield* call("POST", projects, {
          body: { name: "K", slug: "key" },
          headers: keyed(Buffer.from(key, "latin1").toString("latin1"))
        })
        assert.deepStrictEqual(
          [answer.status, answer.body.errors[0].pointer],
          [422, "/headers/idempotency-key"]
        )
      }
      assert.deepStrictEqual(yield* sql("select key from idempotency where key = 'large'"), [])
    })
  )
})
