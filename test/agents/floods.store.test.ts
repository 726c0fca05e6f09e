import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { bucketsStandStill } from "#test/setup/rate-limits.ts"
import { post, requestsWithin } from "./plane.ts"
import { queryOf } from "./world.ts"

const some = (count: number) => Array.from({ length: count }, (_, index) => index)

layer(testPlane({}, { SVC_AGENT_RATE_LIMIT: "30" }), { excludeTestServices: true })(
  "a flood of registrations",
  (it) => {
    it.effect(
      "of authorization requests leaves a bounded number of rows, from one network and from all",
      () =>
        Effect.scoped(
          Effect.gen(function* () {
            const { sql } = yield* Plane
            yield* bucketsStandStill
            const requests = yield* requestsWithin(20)
            const begin = (address: string) =>
              Effect.result(requests.begin(queryOf())).pipe(
                Effect.provideService(CurrentRequest, { id: "test", address })
              )
            const rows = Effect.map(sql("select count(*)::int as n from authorization_request"), ([row]) =>
              Number(row?.["n"])
            )
            const one = yield* Effect.forEach(some(60), () => begin("192.0.2.1"), { concurrency: 10 })
            const refused = one.flatMap((answer) => (answer._tag === "Failure" ? [answer.failure._tag] : []))
            assert.deepStrictEqual(new Set(refused), new Set(["TooManyRequests"]))
            assert.isAtMost(yield* rows, 20)
            yield* Effect.forEach(some(1_100), (i) => begin(`198.51.${i >> 8}.${i & 255}`), {
              concurrency: 20
            })
            assert.isAtMost(yield* rows, 1_000)
            assert.isAtLeast(yield* rows, 900)
            // Strangers are told to come back; who is signed in has a limit of their own, from wherever they ask.
            const tagOf = (address: string, userId?: string, params = {}) =>
              Effect.result(requests.begin(queryOf(params), userId)).pipe(
                Effect.provideService(CurrentRequest, { id: "test", address }),
                Effect.map((answer) => (answer._tag === "Failure" ? answer.failure._tag : "begun"))
              )
            const counted = (tags: ReadonlyArray<string>) => ({
              begun: tags.filter((tag) => tag === "begun").length,
              refused: tags.filter((tag) => tag === "TooManyRequests").length
            })
            assert.strictEqual(yield* tagOf("192.0.2.200"), "TooManyRequests")
            const person = yield* Effect.forEach(some(70), (i) => tagOf(`203.0.113.${i}`, "somebody"), {
              concurrency: 10
            })
            assert.deepStrictEqual(counted(person), { begun: 60, refused: 10 })
            assert.strictEqual(yield* tagOf("192.0.2.200", "somebody else"), "begun")
          })
        )
    )

    it.effect("has us ask other hosts no more than a few times a minute for one network", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const requests = yield* requestsWithin(1_000)
          const begin = Effect.result(
            requests.begin(
              queryOf({ client_id: "https://127.0.0.1:9/none", redirect_uri: "https://a.example/cb" })
            )
          ).pipe(Effect.provideService(CurrentRequest, { id: "test", address: "192.0.2.77" }))
          const answers = yield* Effect.forEach(some(40), () => begin)
          const tags = answers.map((answer) => (answer._tag === "Failure" ? answer.failure._tag : "begun"))
          assert.deepStrictEqual(new Set(tags.slice(0, 30)), new Set(["AuthorizationRefused"]))
          assert.include(tags, "TooManyRequests")
        })
      )
    )

    it.effect(
      "of registrations leaves no row, and is told when to come back, as one of token requests is",
      () =>
        Effect.gen(function* () {
          const { url, sql } = yield* Plane
          const count = Effect.gen(function* () {
            const tables = yield* sql(`select relname from pg_class
          where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'rate_limit'`)
            const counts = tables.map(({ relname }) => `(select count(*) from "${relname}")`)
            const [row] = yield* sql(`select (${counts.join(" + ")})::int as n`)
            return row?.["n"]
          })
          const before = yield* count
          const answers = yield* Effect.forEach(
            some(60),
            (i) =>
              i % 2 === 0
                ? Effect.promise(async () => {
                    const { status, headers } = await fetch(`${url}/oauth/register`, {
                      method: "POST",
                      headers: { "content-type": "application/json" },
                      body: JSON.stringify({
                        client_name: `${i}`,
                        redirect_uris: ["https://agent.example/cb"]
                      })
                    })
                    return { status, headers }
                  })
                : post(url, "/oauth/token", {
                    grant_type: "refresh_token",
                    client_id: "svc-cli",
                    refresh_token: "x"
                  }),
            { concurrency: 10 }
          )
          assert.deepStrictEqual(yield* count, before)
          assert.deepStrictEqual(new Set(answers.map(({ status }) => status)), new Set([201, 400, 429]))
          for (const { status, headers } of answers) {
            if (status === 429) assert.isAtLeast(Number(headers.get("retry-after")), 1)
          }
        })
    )
  }
)
