import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connectionString } from "#test/setup/shown.ts"
import { eventually } from "#test/setup/wait.ts"

const base = "/v1/orgs/main/projects/shop/database"

const select = (url: string, ca: string) =>
  Effect.promise(async () => {
    const plain = url.replace(/\?.*/, "")
    const sql = postgres(plain, {
      ssl: { ca, rejectUnauthorized: true },
      max: 1,
      connect_timeout: 60,
      onnotice: () => {}
    })
    try {
      return String((await sql`select current_user as name`)[0]?.["name"])
    } catch (error) {
      return String(error)
    } finally {
      await sql.end({ timeout: 1 })
    }
  })

layer(testPlane(), { excludeTestServices: true })("database", (it) => {
  it.effect(
    "is provisioned, read, rotated and deleted, and a real client follows",
    () =>
      Effect.gen(function* () {
        const { call, session } = yield* Plane
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
        assert.strictEqual((yield* call("GET", base)).status, 404)
        assert.strictEqual((yield* call("POST", base, { body: { region: "moon" } })).status, 422)
        assert.strictEqual((yield* call("POST", `${base}?environment=nope`)).status, 404)

        const made = yield* call("POST", base)
        assert.strictEqual(made.status, 201)
        const first = yield* connectionString(made, `${base}/rotate`)
        assert.strictEqual(yield* select(first, ca), "app")
        const again = yield* call("POST", base)
        assert.deepStrictEqual([again.status, again.body.code], [409, "database_exists"])

        const got = yield* call("GET", base)
        assert.deepStrictEqual([got.status, got.body.status], [200, "ready"])
        assert.strictEqual(got.body.user, "app")
        assert.notInclude(JSON.stringify(got.body), "password")

        const rotated = yield* call("POST", `${base}/rotate`)
        assert.strictEqual(rotated.status, 200)
        assert.include(yield* select(first, ca), "password authentication failed")
        assert.strictEqual(yield* select(rotated.body.connectionString, ca), "app")

        assert.strictEqual((yield* call("DELETE", base)).status, 403)
        assert.strictEqual((yield* call("DELETE", base, { token: session })).status, 200)
        yield* eventually("it is gone", call("GET", base), ({ status }) => status === 404)
      }),
    600_000
  )
})
