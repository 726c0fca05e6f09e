import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const base = "/v1/orgs/main/manifest"
const yaml = { "content-type": "application/yaml" }
const project = (slug: string, more: object = {}) => ({
  name: "P",
  slug,
  runtimeClass: "scale-to-zero",
  ...more
})
const manifest = (...projects: ReadonlyArray<object>) => ({ version: 1, organization: "main", projects })

layer(testPlane(), { excludeTestServices: true })("the manifest", (it) => {
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
      // Whoever reviews it reads what its maker read.
      const saved = yield* call("GET", `${base}/plans/${planned.body.planId}`)
      assert.deepStrictEqual(saved.body, { ...planned.body, appliedAt: null, moved: [] })

      const applied = yield* call("POST", `${base}/apply`, { body: { planId: planned.body.planId } })
      assert.strictEqual(applied.status, 202)
      assert.strictEqual(
        (yield* call("POST", `${base}/apply`, { body: { planId: planned.body.planId } })).status,
        404
      )
      const resources = yield* eventually(
        "everything is ready",
        call("GET", "/v1/orgs/main/resources?limit=100"),
        ({ body }): boolean => body.items.every((item: { phase: string }) => item.phase === "ready")
      )
      assert.strictEqual(resources.body.items.length, 5)

      const kept = yield* call("GET", `${base}/plans/${planned.body.planId}`)
      assert.deepInclude(kept.body, { summary: planned.body.summary, moved: [] })
      assert.isNotNull(kept.body.appliedAt)
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
      const { call, tenant } = yield* Plane
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
      const saved = yield* call("GET", `${base}/plans/${planned.body.planId}`)
      assert.deepInclude(saved.body, { moved: stale.body.addresses, appliedAt: null })
      const { adminKey, slug } = yield* tenant()
      const foreign = `/v1/orgs/${slug}/manifest/plans/${planned.body.planId}`
      assert.strictEqual((yield* call("GET", foreign, { token: adminKey })).status, 404)
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

  it.effect("a body that is not JSON is 400 and says where; one that is not YAML is 422 and says where", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const broken =
        '{"version": 1,\n "organization": "main",\n "env": {"KEY": "canary-in-a-broken-text" "B": 1}}'
      for (const operation of ["plan", "apply"]) {
        const json = yield* call("POST", `${base}/${operation}`, { raw: broken })
        assert.deepStrictEqual([json.status, json.body.code], [400, "malformed_body"])
        assert.include(json.body.detail, "line 3, column 43: a comma or a closing brace is expected")
        assert.notInclude(json.text, "canary-in")
        const text = yield* call("POST", `${base}/${operation}`, { raw: "version: 1\norganization: main\n" })
        assert.deepStrictEqual([text.status, text.body.code], [400, "malformed_body"])
        const large = yield* call("POST", `${base}/${operation}`, { raw: `[${"1, ".repeat(50_000)}]` })
        assert.deepStrictEqual([large.status, large.body.code], [400, "malformed_body"])
        const other = yield* call("POST", `${base}/${operation}`, {
          raw: "version: 1\norganization: 'main\n",
          headers: yaml
        })
        assert.deepStrictEqual([other.status, other.body.code], [422, "invalid"])
        assert.isAtLeast(other.body.errors[0].line, 2)
        assert.isAtLeast(other.body.errors[0].column, 1)
      }
    })
  )

  it.effect("blockers and warnings name line and column, in small texts and in large ones", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      for (const count of [1, 2_000]) {
        const caches = Array.from({ length: count }, (_, i) => ({ name: `cache-${i}`, region: "nowhere" }))
        const raw = JSON.stringify(manifest(project("placed", { caches })), null, 1)
        const planned = yield* call("POST", `${base}/plan`, { raw })
        assert.strictEqual(planned.status, 200)
        const [first, ...others] = planned.body.blockers
        const lines = raw.split("\n")
        assert.strictEqual(first.pointer, "/projects/0/caches/0/region")
        assert.include(lines[first.line - 1], "region")
        assert.strictEqual(first.column, (lines[first.line - 1] ?? "").indexOf('"') + 1)
        assert.strictEqual(others.length, count === 1 ? 0 : 100)
        const refused = yield* call("POST", `${base}/apply`, {
          body: { manifest: manifest(project("placed", { caches })) }
        })
        assert.strictEqual(refused.body.errors[0].pointer, "/manifest/projects/0/caches/0/region")
        assert.strictEqual(refused.body.errors[0].line, 1)
      }
    })
  )

  it.effect("deletes only with prune, only by an owner, and only what was confirmed", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      const planned = yield* call("POST", `${base}/plan`, { body: manifest() })
      const { summary, changes } = planned.body
      assert.deepStrictEqual([summary.delete, summary.noop], [0, changes.length])
      assert.include(
        changes.find(({ address }: { address: string }) => address === "Project/shop")?.reasons[1].code,
        "needs_prune"
      )
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
      const left = call("GET", "/v1/orgs/main/resources")
      yield* eventually("nothing is left", left, ({ body }): boolean => body.items.length === 0)
    })
  )

  it.effect(
    "of two that make the same thing at once one is refused, with the names of what is there now",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        for (let round = 0; round < 5; round++) {
          const body = { manifest: manifest(project("shop"), project(`twice-${round}`)) }
          const answers = yield* Effect.all(
            [1, 2, 3].map(() => call("POST", `${base}/apply`, { body })),
            {
              concurrency: "unbounded"
            }
          )
          for (const { status, body } of answers) {
            if (status === 202) continue
            assert.deepStrictEqual([status, body.code], [409, "stale_plan"])
            assert.isAbove(body.addresses.length, 0)
          }
          assert.isTrue(answers.some(({ status }) => status === 202))
        }
        const { body } = yield* call("GET", "/v1/orgs/main/projects")
        assert.sameMembers(
          body.map(({ slug }: { slug: string }) => slug).filter((slug: string) => slug.startsWith("twice")),
          [0, 1, 2, 3, 4].map((round) => `twice-${round}`)
        )
      })
  )
})
