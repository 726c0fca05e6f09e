import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const projects = "/v1/orgs/main/projects"
const base = `${projects}/shop/ai-gateways`

const spec = { name: "ai", allowedModels: ["svc/fast", "svc/reasoning"], monthlyBudgetUsd: 20 }

layer(testPlane(), { excludeTestServices: true })("AI gateways", (it) => {
  it.effect("are created, listed with their usage, read, changed and deleted", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      assert.strictEqual(
        (yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })).status,
        201
      )
      const made = yield* call("POST", base, { body: spec })
      assert.strictEqual(made.status, 201, made.text)
      const { id } = made.body
      const now = new Date()
      const usage = {
        month: new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth())).toISOString(),
        requests: 0,
        inputTokens: 0,
        outputTokens: 0,
        spentUsd: 0,
        budgetUsd: 20,
        reservedUsd: 0,
        remainingUsd: 20
      }
      assert.deepInclude(made.body, {
        ...spec,
        environment: "production",
        timeoutMs: 60_000,
        maxRetries: 2,
        redactPrompts: true,
        usage
      })
      assert.strictEqual((yield* call("POST", base, { body: spec })).status, 409)
      const preview = yield* call("POST", `${base}?environment=preview`, { body: spec })
      assert.deepStrictEqual([preview.status, preview.body.environment], [201, "preview"])
      const listed = yield* call("GET", `${base}?environment=production`)
      assert.deepStrictEqual(
        listed.body.map((one: { id: string; usage: object }) => [one.id, one.usage]),
        [[id, usage]]
      )
      const one = `${base}/${id}`
      const changed = yield* call("PATCH", one, {
        body: { monthlyBudgetUsd: 0.5, maxRetries: 0, redactPrompts: false }
      })
      assert.strictEqual(changed.status, 200, changed.text)
      assert.deepInclude(changed.body, {
        allowedModels: spec.allowedModels,
        monthlyBudgetUsd: 0.5,
        maxRetries: 0,
        redactPrompts: false
      })
      assert.strictEqual(changed.body.usage.remainingUsd, 0.5)
      assert.deepStrictEqual((yield* call("GET", `${one}/models`)).body, spec.allowedModels)
      assert.strictEqual((yield* call("DELETE", one)).status, 403)
      const gone = yield* call("DELETE", one, { token: session })
      assert.deepStrictEqual([gone.status, gone.body], [200, { ok: true }])
      const look = call("GET", one)
      yield* eventually("it is gone", look, ({ status }) => status === 404)
    })
  )

  it.effect("say which models no upstream answers for", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const made = yield* call("POST", base, { body: { ...spec, name: "no-upstream" } })
      const ready = Effect.map(call("GET", `${base}/${made.body.id}`), ({ body }) =>
        body.conditions.find(({ type }: { type: string }) => type === "Ready")
      )
      const condition = yield* eventually(
        "it was looked at",
        ready,
        (it) => it?.reason === "ModelUnavailable"
      )
      assert.strictEqual(condition.status, "false")
      assert.match(condition.message, /svc\/fast, svc\/reasoning/)
    })
  )

  it.effect("take no setting out of its bounds", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const wrong: ReadonlyArray<readonly [object, string]> = [
        [{ allowedModels: [] }, "/allowedModels"],
        [{ allowedModels: ["svc/fast", "svc/fast"] }, "/allowedModels"],
        [{ allowedModels: ["gpt-4o"] }, "/allowedModels/0"],
        [{ monthlyBudgetUsd: -1 }, "/monthlyBudgetUsd"],
        [{ monthlyBudgetUsd: 1e12 }, "/monthlyBudgetUsd"],
        [{ monthlyBudgetUsd: 0.000_000_1 }, "/monthlyBudgetUsd"],
        [{ monthlyBudgetUsd: "20" }, "/monthlyBudgetUsd"],
        [{ timeoutMs: 999 }, "/timeoutMs"],
        [{ timeoutMs: 600_001 }, "/timeoutMs"],
        [{ timeoutMs: 1_000.5 }, "/timeoutMs"],
        [{ maxRetries: -1 }, "/maxRetries"],
        [{ maxRetries: 11 }, "/maxRetries"],
        [{ redactPrompts: "no" }, "/redactPrompts"],
        [{ name: "A" }, "/name"],
        [{ provider: "openai" }, "/provider"]
      ]
      for (const [fields, pointer] of wrong) {
        const answer = yield* call("POST", base, { body: { ...spec, name: "wrong", ...fields } })
        const pointers = answer.body.errors?.map((error: { pointer: string }) => error.pointer)
        assert.deepStrictEqual([answer.status, pointers], [422, [pointer]], JSON.stringify(fields))
      }
      const zero = yield* call("POST", base, { body: { ...spec, name: "zero", monthlyBudgetUsd: 0 } })
      assert.strictEqual(zero.status, 201)
      const most = { timeoutMs: 600_000, maxRetries: 10, monthlyBudgetUsd: 1_000_000 }
      assert.strictEqual((yield* call("PATCH", `${base}/${zero.body.id}`, { body: most })).status, 200)
    })
  )

  it.effect("have keys that are shown once, listed without the secret, and revoked", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const gateway = yield* call("POST", base, { body: { ...spec, name: "keys" } })
      const other = yield* call("POST", base, { body: { ...spec, name: "keys-too" } })
      const keys = `${base}/${gateway.body.id}/keys`
      const made = yield* call("POST", keys, { body: { name: "app" } })
      assert.strictEqual(made.status, 201)
      assert.match(made.body.secret, /^svcgw_[A-Za-z0-9]+$/)
      assert.deepStrictEqual(Object.keys(made.body).sort(), ["id", "keyPrefix", "name", "secret"])
      const second = yield* call("POST", keys, { body: { name: "app" } })
      const list = yield* call("GET", keys)
      assert.deepStrictEqual(
        list.body.map((key: { id: string }) => key.id),
        [made.body.id, second.body.id]
      )
      assert.notInclude(list.text, made.body.secret)
      assert.deepInclude(list.body[0], { name: "app", lastUsedAt: null, revokedAt: null })
      const elsewhere = yield* call("DELETE", `${base}/${other.body.id}/keys/${made.body.id}`)
      assert.strictEqual(elsewhere.status, 404)
      assert.strictEqual((yield* call("DELETE", `${keys}/nonsense`)).status, 404)
      const revoked = yield* call("DELETE", `${keys}/${made.body.id}`)
      assert.deepStrictEqual([revoked.status, revoked.body], [200, { ok: true }])
      assert.isString((yield* call("GET", keys)).body[0].revokedAt)
      assert.strictEqual((yield* call("POST", keys, { body: { name: "" } })).status, 422)
    })
  )

  it.effect("tell what they have spent by model, key and day, and list calls newest first", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const gateway = yield* call("POST", base, { body: { ...spec, name: "used" } })
      const one = `${base}/${gateway.body.id}`
      const key = yield* call("POST", `${one}/keys`, { body: { name: "app" } })
      const org = `(select org_id from resource where uid = '${gateway.body.id}')`
      const month = "date_trunc('month', now() at time zone 'UTC')::date"
      const [g, k, none] = [gateway.body.id, key.body.id, "00000000-0000-0000-0000-000000000000"]
      yield* sql(
        `insert into ai_gateway_month values (${org}, '${g}', ${month}, 3500000000, 250000000, 4, 40, 20)`
      )
      yield* sql(`insert into ai_gateway_usage values
        (${org}, '${g}', ${month}, 'svc/fast', '${k}', 1, 10, 5, 500000000),
        (${org}, '${g}', ${month}, 'svc/reasoning', '${k}', 1, 10, 5, 2000000000),
        (${org}, '${g}', ${month} + 1, 'svc/fast', '${none}', 2, 20, 10, 1000000000),
        (${org}, '${g}', ${month} - 1, 'svc/fast', '${k}', 9, 90, 90, 9000000000)`)
      const whole = yield* call("GET", `${one}/usage`)
      assert.strictEqual(whole.status, 200, whole.text)
      const sums = (requests: number, spentUsd: number) => ({
        requests,
        inputTokens: requests * 10,
        outputTokens: requests * 5,
        spentUsd
      })
      assert.deepInclude(whole.body, {
        ...sums(4, 3.5),
        budgetUsd: 20,
        reservedUsd: 0.25,
        remainingUsd: 16.25,
        models: [
          { model: "svc/reasoning", ...sums(1, 2) },
          { model: "svc/fast", ...sums(3, 1.5) }
        ],
        keys: [
          { keyId: k, name: "app", ...sums(2, 2.5) },
          { keyId: null, name: null, ...sums(2, 1) }
        ]
      })
      assert.notProperty(whole.body, "days")
      const daily = yield* call("GET", `${one}/usage?granularity=day`)
      const first = whole.body.month.slice(0, 8)
      assert.deepStrictEqual(daily.body.days, [
        { date: `${first}01`, ...sums(2, 2.5) },
        { date: `${first}02`, ...sums(2, 1) }
      ])
      assert.strictEqual((yield* call("GET", `${one}/usage?granularity=hour`)).status, 422)

      yield* sql(`insert into ai_gateway_request
        (org_id, gateway_uid, id, gateway_key, model, upstream, status, input_tokens, output_tokens, estimated, cost, latency_ms)
        select ${org}, '${g}', ('019aa000-0000-7000-8000-00000000000' || n)::uuid, '${k}', 'svc/fast', 'first', 200,
          10, 5, false, n * 1000000, 120 from generate_series(1, 5) n`)
      const page = yield* call("GET", `${one}/requests?limit=3`)
      const costs = ({ body }: typeof page) => body.items.map(({ costUsd }: { costUsd: number }) => costUsd)
      assert.deepStrictEqual(costs(page), [0.005, 0.004, 0.003])
      assert.deepInclude(page.body.items[0], {
        model: "svc/fast",
        upstream: "first",
        status: 200,
        inputTokens: 10,
        outputTokens: 5,
        estimated: false,
        latencyMs: 120,
        keyId: k
      })
      const rest = yield* call("GET", `${one}/requests?limit=3&cursor=${page.body.nextCursor}`)
      assert.deepStrictEqual([costs(rest), rest.body.nextCursor], [[0.002, 0.001], null])
      assert.strictEqual((yield* call("GET", `${one}/requests?cursor=nonsense`)).status, 422)
    })
  )

  it.effect("are declared in manifests, and come back in an export", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const gateway = { name: "chat", allowedModels: ["svc/balanced"], monthlyBudgetUsd: 3.25, maxRetries: 1 }
      const manifest = {
        version: 1,
        organization: "main",
        projects: [
          { slug: "declared", name: "Declared", runtimeClass: "scale-to-zero", aiGateways: [gateway] }
        ]
      }
      const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", { body: { manifest } })
      assert.strictEqual(applied.status, 202, applied.text)
      const [made] = (yield* call("GET", `${projects}/declared/ai-gateways`)).body
      assert.deepInclude(made, gateway)
      const planned = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: manifest })
      const actions = planned.body.changes.map(({ action }: { action: string }) => action)
      assert.deepStrictEqual(new Set(actions), new Set(["noop"]))
    })
  )

  it.effect("are called by apps with a token that an environment shows once", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const path = `${projects}/shop/environments/preview/app-service-token/rotate`
      const first = yield* call("POST", path)
      assert.strictEqual(first.status, 200, first.text)
      assert.match(first.body.appServiceToken, /^svcapp_[0-9a-f]{40}$/)
      assert.isNull(first.body.previousValidUntil)
      const second = yield* call("POST", path)
      assert.notStrictEqual(second.body.appServiceToken, first.body.appServiceToken)
      assert.isAbove(Date.parse(second.body.previousValidUntil), Date.now())
    })
  )
})
