import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

const base = "/v1/orgs/main/projects/shop/env"

layer(testPlane(), { excludeTestServices: true })("variables", (it) => {
  it.effect("are set, listed decrypted and removed; others stay as they are", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
      assert.deepStrictEqual((yield* call("GET", base)).body, [])
      const set = yield* call("PUT", base, {
        body: {
          vars: [
            { key: "A", value: "1" },
            { key: "B", value: "2" }
          ]
        }
      })
      assert.deepStrictEqual([set.status, set.body], [200, { count: 2 }])
      yield* call("PUT", base, { body: { vars: [{ key: "B", value: "3" }] } })
      assert.deepStrictEqual((yield* call("GET", base)).body, [
        { key: "A", value: "1" },
        { key: "B", value: "3" }
      ])
      assert.deepStrictEqual((yield* call("GET", `${base}?environment=preview`)).body, [])
      assert.strictEqual((yield* call("DELETE", `${base}/A`)).status, 200)
      assert.strictEqual((yield* call("DELETE", `${base}/A`)).status, 404)
      assert.deepStrictEqual((yield* call("GET", base)).body, [{ key: "B", value: "3" }])

      const bad = yield* call("PUT", base, { body: { vars: [{ key: "lower", value: 1 }] } })
      assert.sameMembers(
        bad.body.errors.map((error: { pointer: string }) => error.pointer),
        ["/vars/0/key", "/vars/0/value"]
      )
      const unpaid = yield* tenant("past_due")
      yield* Effect.void
      const theirs = `/v1/orgs/${unpaid.slug}/projects/shop/env`
      assert.strictEqual(
        (yield* call("PUT", theirs, { token: unpaid.adminKey, body: { vars: [] } })).status,
        404
      )
      assert.strictEqual((yield* call("GET", base, { token: unpaid.memberKey })).status, 404)
    })
  )

  it.effect("are for what runs alone, until they are marked for builds", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Marked", slug: "marked" } })
      const place = "/v1/orgs/main/projects/marked/env"
      const set = (...vars: ReadonlyArray<object>) => call("PUT", place, { body: { vars } })
      const marked = Effect.map(call("GET", place), ({ body }) =>
        body.flatMap(({ key, build }: { key: string; build?: boolean }) => (build === true ? [key] : []))
      )
      yield* set({ key: "A", value: "1" }, { key: "B", value: "1", build: true })
      assert.deepStrictEqual(yield* marked, ["B"])
      const { body } = yield* call("GET", "/v1/orgs/main/manifest")
      const shown = body.projects.find(({ slug }: { slug: string }) => slug === "marked")
      assert.deepStrictEqual([shown.env, shown.envForBuilds], [{ A: "****", B: "****" }, ["B"]])
      // A new value alone leaves the mark.
      yield* set({ key: "A", value: "2", build: true }, { key: "B", value: "2" })
      assert.deepStrictEqual(yield* marked, ["A", "B"])
      yield* set({ key: "B", value: "2", build: false })
      yield* call("DELETE", `${place}/A`)
      yield* set({ key: "A", value: "3" })
      assert.deepStrictEqual(yield* marked, [])
    })
  )

  it.effect("callers who set different variables at once lose none", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Busy", slug: "busy" } })
      const keys = Array.from({ length: 6 }, (_, i) => `KEY_${i}`)
      const answers = yield* Effect.forEach(
        keys,
        (key) => call("PUT", "/v1/orgs/main/projects/busy/env", { body: { vars: [{ key, value: key }] } }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual([...new Set(answers.map(({ status }) => status))], [200])
      const listed = yield* call("GET", "/v1/orgs/main/projects/busy/env")
      assert.sameMembers(
        listed.body.map((variable: { key: string }) => variable.key),
        keys
      )
    })
  )

  it.effect("a value is nowhere in clear: not in the store, not in resources, events, plans or exports", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const canary = "canary-8f3b-value"
      yield* call("PUT", base, { body: { vars: [{ key: "CANARY", value: canary }] } })
      const tables = yield* sql("select tablename from pg_tables where schemaname = 'public'")
      for (const { tablename } of tables) {
        const rows = yield* sql(`select t::text as row from "${String(tablename)}" t`)
        const text = JSON.stringify(rows)
        for (const form of [
          canary,
          Buffer.from(canary).toString("base64"),
          Buffer.from(canary).toString("hex")
        ]) {
          assert.isFalse(text.includes(form), `${String(tablename)} holds the value`)
        }
      }
      const manifest = yield* call("GET", "/v1/orgs/main/manifest")
      const resources = yield* call("GET", "/v1/orgs/main/resources?limit=100")
      const one = resources.body.items.find((item: { kind: string }) => item.kind === "EnvVariables")
      const detail = yield* call("GET", `/v1/orgs/main/resources/${one.uid}`)
      const events = yield* call("GET", `/v1/orgs/main/resources/${one.uid}/events`)
      for (const answer of [manifest, resources, detail, events]) assert.notInclude(answer.text, canary)
      assert.deepStrictEqual(detail.body.spec.variables.CANARY, "****")
    })
  )
})
