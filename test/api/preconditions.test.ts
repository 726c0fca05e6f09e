import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const projects = "/v1/orgs/main/projects"
const stale = { "if-match": '"1"' }

/** The engine's report gives what it is about a revision of its own. */
const settled = Effect.fnUntraced(function* (project: string, kind: string) {
  const { call } = yield* Plane
  const ready = call("GET", `/v1/orgs/main/resources?project=${project}&kind=${kind}&ready=true`)
  yield* eventually("it is ready", ready, ({ body }): boolean => body.items.length > 0)
})

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("If-Match", (it) => {
  it.effect("is honoured by every change of something that is there", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      const project = yield* call("POST", projects, { body: { name: "P", slug: "pre" } })
      const one = `${projects}/pre`
      const cache = yield* call("POST", `${one}/caches`, {
        body: { name: "one", sku: "cache-n1", region: "local" }
      })
      yield* call("POST", `${one}/environments`, { body: { slug: "staging" } })
      // Nothing matches a condition where nothing is.
      const none = yield* call("PUT", `${one}/env`, { body: { vars: [] }, headers: { "if-match": "*" } })
      assert.strictEqual(none.status, 412)
      yield* call("PUT", `${one}/env`, { body: { vars: [{ key: "A", value: "1" }] } })
      const changes: ReadonlyArray<readonly [method: string, path: string, body?: object]> = [
        ["PATCH", one, { name: "Q" }],
        ["DELETE", one],
        ["DELETE", `${one}/environments/staging`],
        ["PUT", `${one}/env`, { vars: [{ key: "A", value: "2" }] }],
        ["DELETE", `${one}/env/A`],
        ["PATCH", `${one}/caches/${cache.body.id}`, { sku: "cache-s1" }],
        ["DELETE", `${one}/caches/${cache.body.id}`],
        ["PUT", `/v1/orgs/main/resources/${project.body.id}/protection`, { protected: true }]
      ]
      for (const [method, path, body] of changes) {
        const answer = yield* call(method, path, {
          token: session,
          headers: stale,
          ...(body === undefined ? {} : { body })
        })
        assert.deepStrictEqual(
          [answer.status, answer.body.code],
          [412, "revision_mismatch"],
          `${method} ${path}`
        )
      }
      assert.deepStrictEqual((yield* call("GET", `${one}/env`)).body, [{ key: "A", value: "1" }])
      assert.strictEqual((yield* call("GET", one)).body.name, "P")
    })
  )

  it.effect("an ETag as it was given lets the change through, once", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", projects, { body: { name: "V", slug: "versions" } })
      const env = `${projects}/versions/env`
      assert.isNull((yield* call("GET", env)).headers.get("etag"))
      yield* call("PUT", env, { body: { vars: [{ key: "A", value: "1" }] } })
      yield* settled("versions", "EnvVariables")
      const etag = (yield* call("GET", env)).headers.get("etag") ?? ""
      const set = (value: string) =>
        call("PUT", env, {
          body: { vars: [{ key: "A", value }] },
          headers: { "if-match": `W/"0", ${etag}` }
        })
      assert.strictEqual((yield* set("2")).status, 200)
      assert.strictEqual((yield* set("3")).status, 412)
      assert.deepStrictEqual((yield* call("GET", env)).body, [{ key: "A", value: "2" }])
    })
  )

  it.effect("of two changes at once on one state, one is refused; without a condition both hold", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", projects, { body: { name: "R", slug: "racing" } })
      const made = yield* call("POST", `${projects}/racing/caches`, {
        body: { name: "one", sku: "cache-n1", region: "local" }
      })
      yield* settled("racing", "Cache")
      const path = `${projects}/racing/caches/${made.body.id}`
      const etag = (yield* call("GET", path)).headers.get("etag") ?? ""
      const changes = [{ sku: "cache-s1" }, { evictionPolicy: "noeviction" }]
      const conditional = yield* Effect.forEach(
        changes,
        (body) => call("PATCH", path, { body, headers: { "if-match": etag } }),
        { concurrency: "unbounded" }
      )
      assert.sameMembers(
        conditional.map(({ status }) => status),
        [200, 412]
      )
      const free = yield* Effect.forEach(changes, (body) => call("PATCH", path, { body }), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(
        free.map(({ status }) => status),
        [200, 200]
      )
      const now = (yield* call("GET", path)).body
      assert.deepStrictEqual([now.sku, now.evictionPolicy], ["cache-s1", "noeviction"])
    })
  )
})
