import * as http from "node:http"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const projects = "/v1/orgs/main/projects"
const keyed = (key: string) => ({ "idempotency-key": key })

// Without a container engine executions wait for one.
layer(testPlane({ containerSocket: "none" }), { excludeTestServices: true, timeout: "2 minutes" })(
  "idempotency keys",
  (it) => {
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
          const known = sql("select from idempotency where key = 'hang-up'")
          yield* eventually("the request has begun", known, (rows) => rows.length > 0)
          request.destroy()
          const repeated = call("POST", path, { raw: body, headers: keyed("hang-up") })
          const again = yield* eventually(
            "the first has its answer",
            repeated,
            ({ status }) => status !== 409
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
                request.end(body, () => setTimeout(() => request.destroy(), 2 ** ((i % 45) / 4)))
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
        yield* eventually("no key is taken", taken, (n) => n === 0)
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
        // As a process leaves it that was killed between its work and its answer.
        yield* sql(`
        create function lose_answer() returns trigger language plpgsql as $$
        begin
          return case when new.status is null or new.key <> 'died' then new end;
        end $$`)
        yield* sql(
          "create trigger lose_answer before update on idempotency for each row execute function lose_answer()"
        )
        const made = yield* send
        assert.strictEqual(made.status, 201)
        yield* sql("drop trigger lose_answer on idempotency")
        const waiting = yield* send
        assert.deepStrictEqual([waiting.status, waiting.body.code], [409, "idempotency_key_in_flight"])
        yield* sql("update idempotency set created_at = now() - interval '10 minutes' where key = 'died'")
        const other = yield* call("POST", projects, {
          body: { name: "E", slug: "else" },
          headers: keyed("died")
        })
        assert.deepStrictEqual([other.status, other.body.code], [409, "idempotency_key_reused"])
        const again = yield* send
        assert.deepStrictEqual([again.status, again.body], [201, made.body])
        assert.isNull(again.headers.get("idempotency-replayed"))
        const kept = yield* send
        assert.deepStrictEqual([kept.status, kept.headers.get("idempotency-replayed")], [201, "true"])
      })
    )

    it.effect(
      "a request that failed after its work was stored is answered with that work at its next try",
      () =>
        Effect.gen(function* () {
          const { call, sql } = yield* Plane
          yield* call("POST", projects, { body: { name: "F", slug: "failing" } })
          const path = `${projects}/failing/executions`
          const image = "docker.io/library/alpine:3"
          const send = call("POST", path, {
            body: { image, command: ["true"], region: "local" },
            headers: keyed("failing")
          })
          // What is stored cannot be shown.
          yield* sql(`
        create function unreadable() returns trigger language plpgsql as $$
        begin
          new.spec := new.spec - 'image';
          return new;
        end $$`)
          yield* sql(`
        create trigger unreadable before insert on resource for each row
        when (new.kind = 'Execution') execute function unreadable()`)
          assert.strictEqual((yield* send).status, 500)
          assert.strictEqual((yield* send).status, 500)
          yield* sql("drop trigger unreadable on resource")
          yield* sql(
            `update resource set spec = spec || '{"image": "${image}"}', generation = generation + 1 where kind = 'Execution'`
          )
          const made = yield* send
          assert.strictEqual(made.status, 202, made.text)
          assert.strictEqual((yield* send).headers.get("idempotency-replayed"), "true")
          const listed = yield* call("GET", path)
          assert.deepStrictEqual(
            listed.body.map(({ id }: { id: string }) => id),
            [made.body.id]
          )
          const [held] = yield* sql(`
        select (select count(*)::int from budget_entry) as entries,
          (select sum(cardinality(uids))::int from execution_org_room) as places`)
          assert.deepStrictEqual(held, { entries: 1, places: 1 })
        })
    )

    it.effect("a refused request leaves its key to the corrected one, and to itself", () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const send = (slug: string) =>
          call("POST", projects, { body: { name: "C", slug }, headers: keyed("corrected") })
        assert.strictEqual((yield* send("Not a slug")).status, 422)
        const taken = yield* call("POST", projects, { body: { name: "T", slug: "taken" } })
        assert.strictEqual((yield* send("taken")).body.code, "slug_taken")
        yield* call("DELETE", `${projects}/${taken.body.id}`, { token: (yield* Plane).session })
        assert.strictEqual((yield* send("taken")).status, 201)
        assert.strictEqual((yield* send("taken")).headers.get("idempotency-replayed"), "true")
        assert.strictEqual((yield* send("other")).body.code, "idempotency_key_reused")
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
  }
)
