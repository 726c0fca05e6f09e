import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { makeProject, setUp } from "./world.ts"

const defaults = {
  ...{ enabled: true, schedule: "daily", categories: [], environments: [] },
  autoRemediation: { enabled: false, maximumRisk: "read", allowedOperationIds: [], maxActionsPerRun: 5 }
}
const hourMs = 3_600_000

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("settings of maintenance", (it) => {
  it.effect("say nothing at first, and then what was set, with what is usual", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { path } = yield* makeProject("fresh")
      const base = `${path}/maintenance`
      const before = yield* call("GET", base)
      assert.deepInclude(before.body, { enabled: false, status: null, nextRunAt: null, openFindings: 0 })
      assert.isNull(before.headers.get("etag"))
      assert.deepStrictEqual((yield* call("GET", `${base}/runs`)).body, { items: [], nextCursor: null })
      assert.deepStrictEqual((yield* call("GET", `${base}/findings`)).body, { items: [], nextCursor: null })
      assert.strictEqual((yield* call("POST", `${base}/runs`)).status, 404)
      assert.strictEqual((yield* call("DELETE", base)).status, 404)

      const set = yield* call("PUT", base, { body: {} })
      assert.deepInclude(set.body, { ...defaults, managedBy: "api" })
      const ready = yield* eventually(
        "it is ready, and has run",
        call("GET", base),
        ({ body }) => body.status === "ready" && Date.parse(body.nextRunAt) > Date.now() + hourMs
      )
      assert.isBelow(Date.parse(ready.body.nextRunAt), Date.now() + 24 * hourMs + 60_000)
      const etag = ready.headers.get("etag") ?? ""
      const hourly = yield* call("PUT", base, { body: { schedule: "hourly" }, headers: { "if-match": etag } })
      assert.strictEqual(hourly.body.schedule, "hourly")
      const stale = yield* call("PUT", base, { body: {}, headers: { "if-match": etag } })
      assert.strictEqual(stale.status, 412)
      yield* eventually(
        "the next run comes sooner",
        call("GET", base),
        ({ body }) => Date.parse(body.nextRunAt) <= Date.now() + hourMs
      )
      yield* call("PUT", base, { body: { enabled: false } })
      yield* eventually("it runs no more", call("GET", base), ({ body }) => body.nextRunAt === null)
    })
  )

  it.effect("are refused where they are none, with the place", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { path } = yield* makeProject("wrong")
      const cases: ReadonlyArray<readonly [object, string]> = [
        [{ schedule: "yearly" }, "/schedule"],
        [{ categories: ["updates"] }, "/categories/0"],
        [{ categories: ["drift", "drift"] }, "/categories"],
        [{ environments: ["Not a slug"] }, "/environments/0"],
        [{ autoRemediation: { maximumRisk: "destructive" } }, "/autoRemediation/maximumRisk"],
        [{ autoRemediation: { maxActionsPerRun: 101 } }, "/autoRemediation/maxActionsPerRun"],
        [{ autoRemediation: { maxActionsPerRun: -1 } }, "/autoRemediation/maxActionsPerRun"],
        [{ colour: "red" }, "/colour"]
      ]
      for (const [body, pointer] of cases) {
        const answer = yield* call("PUT", `${path}/maintenance`, { body })
        assert.strictEqual(answer.status, 422, JSON.stringify(body))
        assert.include(
          answer.body.errors.map((error: { readonly pointer: string }) => error.pointer),
          pointer
        )
      }
    })
  )

  it.effect("are in manifests, and go with all that was found", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { path } = yield* makeProject("declared")
      const maintenance = { ...defaults, schedule: "weekly", environments: ["production"] }
      const project = { slug: "declared", name: "declared", runtimeClass: "scale-to-zero", maintenance }
      const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
        body: { manifest: { version: 1, organization: "main", projects: [project] } }
      })
      assert.strictEqual(applied.status, 202, applied.text)
      const base = `${path}/maintenance`
      const shown = yield* call("GET", base)
      assert.deepInclude(shown.body, { ...maintenance, managedBy: "manifest" })
      const exported = yield* call("GET", "/v1/orgs/main/manifest", {
        headers: { accept: "application/json" }
      })
      const found = exported.body.projects.find(({ slug }: { slug: string }) => slug === "declared")
      assert.deepStrictEqual(found.maintenance, maintenance)

      yield* eventually(
        "it has run",
        call("GET", `${base}/runs`),
        ({ body }) => body.items.at(-1)?.finishedAt != null
      )
      assert.deepStrictEqual((yield* call("DELETE", base)).body, { ok: true })
      assert.isNull((yield* call("GET", base)).body.status)
      const left = sql(`
        select 'schedule' as what from maintenance_schedule join resource m using (org_id, uid)
          where m.deletion_requested_at is not null
        union all select 'run' from maintenance_run r join resource m on m.uid = r.maintenance_uid
          where m.deletion_requested_at is not null`)
      yield* eventually("nothing is left", left, ({ length }) => length === 0)
    })
  )

  it.effect("are those of one project: nobody else sees or runs it, and members only look", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const shop = yield* makeProject("own")
      yield* setUp(shop)
      const [run] = (yield* call("GET", `${shop.path}/maintenance/runs`)).body.items
      const other = yield* makeProject("other")
      yield* setUp(other)
      const elsewhere = yield* call("GET", `${other.path}/maintenance/runs/${run.id}`)
      assert.strictEqual(elsewhere.status, 404)
      const stranger = yield* tenant()
      for (const [method, path] of [
        ["GET", ""],
        ["GET", "/findings"],
        ["POST", "/runs"]
      ] as const) {
        const answer = yield* call(method, `${shop.path}/maintenance${path}`, { token: stranger.adminKey })
        assert.strictEqual(answer.status, 404)
      }
      const theirs = `/v1/orgs/${stranger.slug}/projects`
      yield* call("POST", theirs, { token: stranger.adminKey, body: { name: "Shop", slug: "shop" } })
      const base = `${theirs}/shop/maintenance`
      assert.strictEqual((yield* call("PUT", base, { token: stranger.memberKey, body: {} })).status, 403)
      assert.strictEqual((yield* call("PUT", base, { token: stranger.adminKey, body: {} })).status, 200)
      assert.strictEqual((yield* call("POST", `${base}/runs`, { token: stranger.memberKey })).status, 403)
      assert.strictEqual((yield* call("GET", `${base}/runs`, { token: stranger.memberKey })).status, 200)
    })
  )
})
