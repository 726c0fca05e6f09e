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
