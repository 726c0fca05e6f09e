import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { BudgetView } from "#src/projects/api.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

layer(testPlane(), { excludeTestServices: true })("the budget of a project", (it) => {
  it.effect("is none at first, is set as a whole, and shows what was spent this month", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const project = yield* call("POST", "/v1/orgs/main/projects", {
        body: { name: "Shop", slug: "shop" }
      })
      const path = "/v1/orgs/main/projects/shop/budget"
      const before = yield* call("GET", path)
      assert.strictEqual(before.status, 200)
      yield* fits(BudgetView, before.body)
      // It may end at any moment.
      const { month, ...atFirst } = before.body
      assert.match(month, /^\d{4}-\d{2}$/)
      const nothing = { spentUsd: 0, reservedUsd: 0 }
      const unset = { monthlyCapUsd: null, alertThresholdPercent: 80, hardStop: false, remainingUsd: null }
      assert.deepStrictEqual(atFirst, { ...unset, ...nothing })

      const body = { monthlyCapUsd: 12.5, alertThresholdPercent: null, hardStop: true }
      const set = yield* call("PUT", path, { body })
      for (const answer of [set, yield* call("GET", path)]) {
        const { month: _, ...now } = answer.body
        assert.deepStrictEqual([answer.status, now], [200, { ...body, ...nothing, remainingUsd: 12.5 }])
      }
      yield* sql(`insert into budget_month (org_id, project_uid, month, spent, reserved)
        select org_id, uid, date_trunc('month', now() at time zone 'UTC') + n * interval '1 month', 1000001, 11000000
        from resource, generate_series(0, 1) n where uid = '${project.body.id}'`)
      const spent = yield* call("GET", `/v1/orgs/main/projects/${project.body.id}/budget`)
      yield* fits(BudgetView, spent.body)
      assert.deepInclude(spent.body, { spentUsd: 1.000001, reservedUsd: 11, remainingUsd: 0.499999 })
      // What is left out is as at first; what is over the cap leaves nothing, and not less.
      const lower = yield* call("PUT", path, { body: { monthlyCapUsd: 3 } })
      assert.deepInclude(lower.body, { alertThresholdPercent: 80, hardStop: false, remainingUsd: 0 })
      const none = yield* call("PUT", path, { body: { monthlyCapUsd: null } })
      assert.deepInclude(none.body, { monthlyCapUsd: null, remainingUsd: null, spentUsd: 1.000001 })

      const audit = yield* call("GET", "/v1/orgs/main/audit?limit=100")
      const operations = audit.body.items.map(({ operation }: { operation: string }) => operation)
      assert.lengthOf(
        operations.filter((one: string) => one === "projects.setBudget"),
        3
      )
    })
  )

  it.effect("changes under If-Match, and of two changes of one state one is refused", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "If", slug: "if-match" } })
      const path = "/v1/orgs/main/projects/if-match/budget"
      const set = (monthlyCapUsd: number, etag: string) =>
        call("PUT", path, { body: { monthlyCapUsd }, headers: { "if-match": etag } })
      const first = (yield* call("GET", path)).headers.get("etag") ?? ""
      const made = yield* set(1, first)
      assert.strictEqual(made.status, 200)
      const stale = yield* set(2, first)
      assert.deepStrictEqual([stale.status, stale.body.code], [412, "revision_mismatch"])
      const etag = made.headers.get("etag") ?? ""
      assert.strictEqual(etag, (yield* call("GET", path)).headers.get("etag"))
      const both = yield* Effect.all([set(3, etag), set(4, etag)], { concurrency: "unbounded" })
      assert.sameMembers(
        both.map(({ status }) => status),
        [200, 412]
      )
      assert.strictEqual((yield* set(5, "*")).body.monthlyCapUsd, 5)
    })
  )

  it.effect("is in manifests, with the same values", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const project = { name: "M", slug: "in-manifest", runtimeClass: "scale-to-zero" }
      const path = "/v1/orgs/main/projects/in-manifest/budget"
      const manifest = (more: object) => ({
        manifest: { version: 1, organization: "main", projects: [{ ...project, ...more }] }
      })
      const apply = (more: object) => call("POST", "/v1/orgs/main/manifest/apply", { body: manifest(more) })
      const exported = Effect.map(call("GET", "/v1/orgs/main/manifest"), ({ body }) =>
        body.projects.find(({ slug }: { slug: string }) => slug === "in-manifest")
      )
      const inForce = (cap: number) =>
        untilAnswer(call("GET", path), ({ body }) => body.monthlyCapUsd === cap)

      const budget = { monthlyCapUsd: 12.5, alertThresholdPercent: null, hardStop: true }
      const applied = yield* apply({ budget })
      assert.strictEqual(applied.status, 202, applied.text)
      assert.deepInclude((yield* inForce(12.5)).body, budget)
      assert.deepStrictEqual((yield* exported).budget, budget)
      // What the API sets is what a manifest shows, and what a manifest does not have stays.
      const changed = { ...budget, monthlyCapUsd: 20, alertThresholdPercent: 50 }
      assert.strictEqual((yield* call("PUT", path, { body: changed })).status, 200)
      assert.deepStrictEqual((yield* exported).budget, changed)
      assert.deepStrictEqual((yield* apply({})).body.resources, [])
      assert.deepInclude((yield* call("GET", path)).body, changed)
      // What is left out of it is as at first.
      assert.strictEqual((yield* apply({ budget: { monthlyCapUsd: null } })).status, 202)
      assert.deepStrictEqual((yield* exported).budget, {
        monthlyCapUsd: null,
        alertThresholdPercent: 80,
        hardStop: false
      })
      const wrong = yield* apply({ budget: { monthlyCapUsd: -1 } })
      assert.strictEqual(wrong.status, 422)
      assert.include(wrong.text, "/projects/0/budget/monthlyCapUsd")
    })
  )

  it.effect("answers each refusal that is specified", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const [mine, unpaid] = [yield* tenant(), yield* tenant("past_due")]
      yield* call("POST", `/v1/orgs/${mine.slug}/projects`, {
        token: mine.adminKey,
        body: { name: "P", slug: "mine" }
      })
      const path = `/v1/orgs/${mine.slug}/projects/mine/budget`
      const get = (at: string, token: string | null) => call("GET", at, { token })
      const put = (at: string, token: string | null, body: unknown = { monthlyCapUsd: 1 }) =>
        call("PUT", at, { token, body })
      assert.strictEqual((yield* get(path, null)).status, 401)
      assert.strictEqual((yield* put(path, null)).status, 401)
      assert.strictEqual((yield* get(path, mine.memberKey)).status, 200)
      assert.strictEqual((yield* put(path, mine.memberKey)).status, 403)
      assert.strictEqual((yield* put(path, mine.admin)).status, 200)
      for (const token of [unpaid.adminKey, unpaid.owner]) {
        assert.strictEqual((yield* get(path, token)).status, 404)
        assert.strictEqual((yield* put(path, token)).status, 404)
      }
      const missing = `/v1/orgs/${mine.slug}/projects/nope/budget`
      assert.strictEqual((yield* get(missing, mine.adminKey)).status, 404)
      assert.strictEqual((yield* put(missing, mine.adminKey)).status, 404)
      assert.strictEqual((yield* call("DELETE", path, { token: mine.adminKey })).status, 405)

      const malformed = yield* call("PUT", path, { token: mine.adminKey, raw: "{" })
      assert.strictEqual(malformed.status, 400)
      const text = yield* call("PUT", path, {
        token: mine.adminKey,
        raw: "monthlyCapUsd",
        headers: { "content-type": "text/plain" }
      })
      assert.strictEqual(text.status, 415)
      const large = yield* call("PUT", path, {
        token: mine.adminKey,
        raw: `{"monthlyCapUsd": 1${" ".repeat(1024 * 1024)}}`
      })
      assert.strictEqual(large.status, 413)
      const faults: ReadonlyArray<readonly [body: object, ...pointers: ReadonlyArray<string>]> = [
        [{}, "/monthlyCapUsd"],
        [{ monthlyCapUsd: -1 }, "/monthlyCapUsd"],
        [{ monthlyCapUsd: 1_000_000_001 }, "/monthlyCapUsd"],
        [{ monthlyCapUsd: 0.0000001 }, "/monthlyCapUsd"],
        [{ monthlyCapUsd: "1" }, "/monthlyCapUsd"],
        [
          { monthlyCapUsd: 1, alertThresholdPercent: 0, hardStop: "no", cap: 1 },
          "/alertThresholdPercent",
          "/hardStop",
          "/cap"
        ],
        [{ monthlyCapUsd: 1, alertThresholdPercent: 101 }, "/alertThresholdPercent"],
        [{ monthlyCapUsd: 1, alertThresholdPercent: 1.5 }, "/alertThresholdPercent"]
      ]
      for (const [body, ...pointers] of faults) {
        const refused = yield* put(path, mine.adminKey, body)
        assert.strictEqual(refused.status, 422, JSON.stringify(body))
        assert.sameMembers(
          refused.body.errors.map(({ pointer }: { pointer: string }) => pointer),
          pointers
        )
      }
      assert.strictEqual((yield* put(path, mine.adminKey, { monthlyCapUsd: 0.000001 })).status, 200)
      assert.strictEqual((yield* put(path, mine.adminKey, { monthlyCapUsd: 999_999_999.999 })).status, 200)
    })
  )

  it.effect("needs billing to be set, and none to be read", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const { adminKey: token } = mine
      yield* call("POST", `/v1/orgs/${mine.slug}/projects`, { token, body: { name: "P", slug: "late" } })
      yield* sql(`update organization set billing_status = 'past_due' where id = '${mine.id}'`)
      const path = `/v1/orgs/${mine.slug}/projects/late/budget`
      const set = yield* call("PUT", path, { token, body: { monthlyCapUsd: 1 } })
      assert.deepStrictEqual([set.status, set.body.code], [402, "billing_inactive"])
      // A fault is told first.
      assert.strictEqual((yield* call("PUT", path, { token, body: {} })).status, 422)
      assert.strictEqual((yield* call("GET", path, { token })).body.monthlyCapUsd, null)
    })
  )
})
