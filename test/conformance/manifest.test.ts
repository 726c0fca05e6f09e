import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"

const base = "/v1/orgs/main/manifest"
const yaml = { "content-type": "application/yaml" }
const project = (slug: string, more: object = {}) => ({
  name: "P",
  slug,
  runtimeClass: "scale-to-zero",
  ...more
})
const manifest = (...projects: ReadonlyArray<object>) => ({ version: 1, organization: "main", projects })

layer(testPlane(), { excludeTestServices: true, timeout: "3 minutes" })("the manifest", (it) => {
  it.effect("is planned, reviewed, applied as it was reviewed, and exported; a second plan is empty", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const wanted = manifest(
        project("shop", { env: { KEY: "canary-secret" }, caches: [{ name: "one", region: "local" }] })
      )
      const planned = yield* call("POST", `${base}/plan`, { body: wanted })
      assert.strictEqual(planned.status, 200)
      assert.deepStrictEqual([planned.body.summary.create, planned.body.blockers], [3, []])
      assert.notInclude(planned.text, "canary-secret")
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/projects")).body.length, 0)

      const applied = yield* call("POST", `${base}/apply`, { body: { planId: planned.body.planId } })
      assert.strictEqual(applied.status, 202)
      assert.strictEqual(
        (yield* call("POST", `${base}/apply`, { body: { planId: planned.body.planId } })).status,
        404
      )
      const resources = yield* call("GET", "/v1/orgs/main/resources?limit=100").pipe(
        Effect.repeat({
          until: ({ body }: Answer): boolean =>
            body.items.every((item: { phase: string }) => item.phase === "ready")
        }),
        Effect.timeout("60 seconds")
      )
      assert.strictEqual(resources.body.items.length, 5)

      const exported = yield* call("GET", base, { headers: { accept: "application/yaml" } })
      assert.strictEqual(exported.headers.get("content-type"), "application/yaml")
      assert.include(exported.text, 'KEY: "****"')
      const again = yield* call("POST", `${base}/plan`, { raw: exported.text, headers: yaml })
      assert.deepStrictEqual(
        again.body.changes.filter((change: { action: string }) => change.action !== "noop"),
        []
      )
    })
  )

  it.effect("a plan whose base has moved is refused with what moved, and changes nothing", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const planned = yield* call("POST", `${base}/plan`, {
        body: manifest(project("shop"), project("late"))
      })
      yield* call("PUT", "/v1/orgs/main/projects/shop/env", {
        body: { vars: [{ key: "OTHER", value: "x" }] }
      })
      const stale = yield* call("POST", `${base}/apply`, { body: { planId: planned.body.planId } })
      assert.deepStrictEqual([stale.status, stale.body.code], [409, "stale_plan"])
      assert.deepStrictEqual(stale.body.addresses, ["shop/production/EnvVariables/variables"])
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/projects/late")).status, 404)
    })
  )

  it.effect("faults come with pointer, line and column, in plans and in applies", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const source =
        "version: 1\norganization: main\nprojects:\n  - name: A\n    slug: A\n    runtimeClass: never\n"
      const planned = yield* call("POST", `${base}/plan`, { raw: source, headers: yaml })
      assert.strictEqual(planned.status, 422)
      assert.sameDeepMembers(
        planned.body.errors.map((error: { pointer: string; line: number }) => [error.pointer, error.line]),
        [
          ["/projects/0/slug", 5],
          ["/projects/0/runtimeClass", 6]
        ]
      )
      const applied = yield* call("POST", `${base}/apply`, { body: { manifest: manifest({ slug: "x1" }) } })
      assert.isTrue(
        applied.body.errors.every((error: { pointer: string }) =>
          error.pointer.startsWith("/manifest/projects/0")
        )
      )
      const other = yield* tenant()
      const foreign = yield* call("POST", `/v1/orgs/${other.slug}/manifest/plan`, {
        token: other.adminKey,
        body: manifest()
      })
      assert.strictEqual(foreign.body.errors[0].pointer, "/organization")
      const unpaid = yield* tenant("unpaid")
      const refused = yield* call("POST", `/v1/orgs/${unpaid.slug}/manifest/apply`, {
        token: unpaid.adminKey,
        body: { manifest: { version: 1, organization: unpaid.slug } }
      })
      assert.strictEqual(refused.status, 402)
      const huge = yield* call("POST", `${base}/plan`, { raw: `{"x":"${"x".repeat(10_000_000)}"}` })
      assert.strictEqual(huge.status, 413)
    })
  )

  it.effect("deletes only with prune, only by an owner, and only what was confirmed", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      const kept = yield* call("POST", `${base}/apply`, { body: { manifest: manifest() } })
      assert.strictEqual(kept.status, 202)
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/projects/shop")).status, 200)
      const blocked = yield* call("POST", `${base}/apply`, {
        token: session,
        body: { manifest: manifest(), prune: true }
      })
      assert.deepStrictEqual([blocked.status, blocked.body.code], [422, "plan_blocked"])
      const body = { manifest: manifest(), prune: true, confirm: ["shop"] }
      const low = yield* call("POST", `${base}/apply`, { body })
      assert.deepStrictEqual([low.status, low.body.code], [403, "forbidden"])
      assert.strictEqual((yield* call("POST", `${base}/apply`, { token: session, body })).status, 202)
      yield* call("GET", "/v1/orgs/main/resources").pipe(
        Effect.repeat({ until: ({ body }: Answer): boolean => body.items.length === 0 }),
        Effect.timeout("60 seconds")
      )
    })
  )
})
