import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const base = "/v1/orgs/main/projects"

layer(testPlane(), { excludeTestServices: true })("projects and environments", (it) => {
  it.effect("projects live by slug and by id, change under If-Match, and go with everything in them", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      const made = yield* call("POST", base, {
        body: { name: "Shop", slug: "shop", git: { repo: "acme/shop" } }
      })
      assert.strictEqual(made.status, 201)
      assert.strictEqual(made.body.runtimeClass, "scale-to-zero")
      assert.strictEqual((yield* call("POST", base, { body: { name: "Admin", slug: "admin" } })).status, 422)
      const bad = yield* call("POST", base, { body: { name: "", slug: "Shop", git: { repo: "x" } } })
      assert.strictEqual(bad.status, 422)
      assert.strictEqual(bad.body.errors.length, 3)

      const bySlug = yield* call("GET", `${base}/shop`)
      const byId = yield* call("GET", `${base}/${made.body.id}`)
      assert.deepStrictEqual(bySlug.body, byId.body)
      // The engine may write its status between the two, and with that the revision rises: read and repeat.
      const patch = Effect.gen(function* () {
        const read = yield* call("GET", `${base}/shop`)
        const headers = { "if-match": read.headers.get("etag") ?? "" }
        return yield* call("PATCH", `${base}/shop`, { body: { git: null, name: "New" }, headers })
      })
      const patched = yield* eventually("nobody came between", patch, ({ status }) => status !== 412)
      assert.deepStrictEqual([patched.status, patched.body.git, patched.body.name], [200, null, "New"])
      assert.strictEqual((yield* call("GET", base)).body.length, 1)

      const environments = yield* call("GET", `${base}/shop/environments`)
      assert.deepStrictEqual(
        environments.body.map((one: { slug: string; implicit: boolean }) => [one.slug, one.implicit]),
        [
          ["preview", true],
          ["production", true]
        ]
      )
      const staging = yield* call("POST", `${base}/shop/environments`, { body: { slug: "staging" } })
      assert.strictEqual(staging.status, 201)
      assert.strictEqual(
        (yield* call("POST", `${base}/shop/environments`, { body: { slug: "-" } })).status,
        422
      )
      const kept = yield* call("DELETE", `${base}/shop/environments/production`, { token: session })
      assert.deepStrictEqual([kept.status, kept.body.code], [409, "implicit_environment"])
      assert.strictEqual(
        (yield* call("DELETE", `${base}/shop/environments/staging`, { token: session })).status,
        200
      )

      assert.strictEqual((yield* call("DELETE", `${base}/shop`, { token: session })).status, 200)
      yield* eventually("it is gone", call("GET", `${base}/shop`), ({ status }) => status === 404)
    })
  )

  it.effect("a region must be one that there is, in creations, changes and manifests alike", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const body = { name: "Far", slug: "far", runtimeClass: "always-on" }
      const made = yield* call("POST", base, { body: { ...body, region: "local" } })
      assert.deepStrictEqual([made.status, made.body.region], [201, "local"])
      const elsewhere = yield* call("POST", base, { body: { ...body, slug: "far2", region: "moon" } })
      const moved = yield* call("PATCH", `${base}/far`, { body: { region: "moon" } })
      for (const answer of [elsewhere, moved]) {
        assert.strictEqual(answer.status, 422)
        assert.deepStrictEqual(
          answer.body.errors.map(({ pointer }: { pointer: string }) => pointer),
          ["/region"]
        )
      }
      const kept = yield* call("PATCH", `${base}/far`, { body: { region: null } })
      assert.strictEqual(kept.body.region, null)
      const planned = yield* call("POST", "/v1/orgs/main/manifest/plan", {
        body: { version: 1, organization: "main", projects: [{ ...body, region: "moon" }] }
      })
      assert.deepStrictEqual(
        planned.body.blockers.map(({ pointer, code }: { pointer: string; code: string }) => [pointer, code]),
        [["/projects/0/region", "invalid_spec"]]
      )
    })
  )

  it.effect("an environment has an origin, and a signing secret that is shown when it is replaced", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      yield* call("POST", base, { body: { name: "Origins", slug: "origins" } })
      const environments = `${base}/origins/environments`
      const one = `${environments}/production`
      const before = yield* call("GET", environments)
      assert.deepStrictEqual(
        before.body.map(({ origin }: { origin: string | null }) => origin),
        [null, null]
      )
      const named = yield* call("PATCH", one, { body: { origin: "https://Shop.Example.com:443/" } })
      assert.deepStrictEqual([named.status, named.body.origin], [200, "https://shop.example.com"])
      assert.match(named.headers.get("etag") ?? "", /^"\d+"$/)
      const again = yield* call("PATCH", one, {
        body: { origin: "http://127.0.0.1:3000" },
        headers: { "if-match": "*" }
      })
      assert.strictEqual(again.body.origin, "http://127.0.0.1:3000")
      for (const origin of [
        "shop",
        "ftp://x.example",
        "https://x.example/path",
        "https://u:p@x.example",
        1
      ]) {
        const refused = yield* call("PATCH", one, { body: { origin } })
        assert.strictEqual(refused.status, 422, String(origin))
        assert.strictEqual(refused.body.errors[0].pointer, "/origin")
      }
      assert.strictEqual((yield* call("PATCH", one, { body: {} })).status, 422)
      // Exports, plans and the declared environments know nothing of it, and leave it as it is.
      const exported = yield* call("GET", "/v1/orgs/main/manifest")
      assert.notInclude(JSON.stringify(exported.body), "127.0.0.1:3000")

      const first = yield* call("POST", `${one}/signing-secret/rotate`)
      const second = yield* call("POST", `${one}/signing-secret/rotate`)
      assert.match(first.body.signingSecret, /^whsec_[0-9a-f]{40}$/)
      assert.notStrictEqual(first.body.signingSecret, second.body.signingSecret)
      const kept = (yield* call("GET", environments)).body.find(
        ({ slug }: { slug: string }) => slug === "production"
      )
      assert.strictEqual(kept.origin, "http://127.0.0.1:3000")
      assert.strictEqual((yield* call("PATCH", one, { body: { origin: null } })).body.origin, null)
      yield* call("POST", environments, { body: { slug: "leaving" } })
      yield* call("DELETE", `${environments}/leaving`, { token: session })
    })
  )

  it.effect("the name of a project that is being deleted is free at once", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      // With something that is not gone at once. Applied: whoever creates a cache by a request waits for its password.
      const caches = [{ name: "one", sku: "cache-n1", region: "local" }]
      const projects = [{ name: "A", slug: "again", runtimeClass: "scale-to-zero", caches }]
      const manifest = { version: 1, organization: "main", projects }
      const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", { body: { manifest } })
      assert.strictEqual(applied.status, 202, JSON.stringify(applied.body))
      const first = yield* call("GET", `${base}/again`)
      yield* call("DELETE", `${base}/again`, { token: session })
      const second = yield* call("POST", base, { body: { name: "B", slug: "again" } })
      assert.strictEqual(second.status, 201)
      const now = yield* call("GET", `${base}/again`)
      assert.strictEqual(now.body.id, second.body.id)
      assert.notStrictEqual(now.body.id, first.body.id)
    })
  )
})
