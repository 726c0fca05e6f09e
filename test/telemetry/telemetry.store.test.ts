import { randomUUID } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { Deployments } from "#src/deployments/Deployments.ts"
import { moveBilling } from "#src/organizations/Billing.ts"
import { Db } from "#src/store/Db.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { actor } from "#test/setup/fixtures.ts"

const key = Buffer.alloc(32, 7).toString("base64")
const path = "/v1/telemetry/events"
const dayMs = 24 * 3_600_000

const event = (more: Record<string, unknown> = {}) => ({
  name: "cli_installed",
  at: new Date().toISOString(),
  properties: { channel: "shell", os: "Linux", arch: "x86_64" },
  ...more
})

const track = (events: ReadonlyArray<unknown>, headers: Record<string, string> = {}) =>
  Effect.flatMap(Plane, ({ call }) => call("POST", path, { token: null, body: { events }, headers }))

const deployments = Layer.unwrap(
  Effect.map(Plane, ({ databaseUrl }) =>
    Deployments.layer.pipe(Layer.provideMerge(Db.layer({ url: Redacted.make(databaseUrl) })))
  )
)
/** Each request has an address of its own, behind a proxy. */
const world = deployments.pipe(
  Layer.provideMerge(
    testPlane({ proxies: 1 }, { SVC_TELEMETRY_KEY: key, SVC_TELEMETRY_NETWORK_PER_MINUTE: "10" })
  )
)
let addresses = 0
const elsewhere = () => ({ "x-forwarded-for": `198.51.${Math.floor(++addresses / 250)}.${addresses % 250}` })

layer(world, { excludeTestServices: true })("events of command lines", (it) => {
  it.effect("are taken in their closed form, and leave only digests of who sent them", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const [anonymousId, organizationId] = [randomUUID(), randomUUID()]
      const from = { "x-forwarded-for": "203.0.113.77", "user-agent": "svc-canary" }
      const sent = yield* track([event({ anonymousId, organizationId }), event()], from)
      assert.strictEqual(sent.status, 202)
      assert.deepStrictEqual(sent.body, { accepted: 2 })
      const again = yield* track([event({ anonymousId: anonymousId.toUpperCase() })], elsewhere())
      assert.strictEqual(again.status, 202)
      const stored = yield* sql(`select encode(anonymous_digest, 'hex') as anonymous,
        encode(organization_digest, 'hex') as organization from telemetry_event where anonymous_digest is not null`)
      assert.strictEqual(stored.length, 2)
      assert.strictEqual(stored[0]?.["anonymous"], stored[1]?.["anonymous"])
      assert.notStrictEqual(stored[0]?.["anonymous"], stored[0]?.["organization"])
      const tables = yield* sql(
        "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
      )
      for (const { relname } of tables) {
        const text = (yield* sql(`select t::text as row from "${String(relname)}" t`))
          .map(({ row }) => row)
          .join()
        for (const canary of [anonymousId, organizationId, "203.0.113.77", "svc-canary"]) {
          assert.notInclude(text, canary, String(relname))
          assert.notInclude(text, canary.replaceAll("-", ""), String(relname))
        }
      }
    })
  )

  it.effect("are refused in any other form", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const properties = event().properties
      const wrong: ReadonlyArray<readonly [event: unknown, pointer: string]> = [
        [event({ name: "billing_activated" }), "/events/0/name"],
        [event({ name: "agent_connected" }), "/events/0/name"],
        [event({ name: "first_deploy_ready" }), "/events/0/name"],
        [event({ name: "anything" }), "/events/0/name"],
        [event({ at: new Date(Date.now() - 25 * 3_600_000).toISOString() }), "/events/0/at"],
        [event({ at: new Date(Date.now() + 600_000).toISOString() }), "/events/0/at"],
        [event({ at: "now" }), "/events/0/at"],
        [event({ anonymousId: "ada@example.test" }), "/events/0/anonymousId"],
        [event({ organizationId: "main" }), "/events/0/organizationId"],
        [event({ email: "ada@example.test" }), "/events/0/email"],
        [event({ properties: { ...properties, address: "192.0.2.1" } }), "/events/0/properties/address"],
        [event({ properties: { ...properties, os: "192.0.2.1" } }), "/events/0/properties/os"],
        [event({ properties: { ...properties, os: { name: "Linux" } } }), "/events/0/properties/os"],
        [event({ properties: { ...properties, arch: "riscv64" } }), "/events/0/properties/arch"],
        [
          event({ properties: { channel: "npm", os: "Linux", arch: "arm64" } }),
          "/events/0/properties/channel"
        ],
        [event({ properties: {} }), "/events/0/properties/channel"],
        [event({ properties: undefined }), "/events/0/properties"]
      ]
      for (const [one, pointer] of wrong) {
        const { status, body, text } = yield* track([one], elsewhere())
        assert.strictEqual(status, 422, `${JSON.stringify(one)} ${text}`)
        assert.include(
          body.errors.map((fault: { pointer: string }) => fault.pointer),
          pointer
        )
      }
      assert.strictEqual((yield* track([], elsewhere())).status, 422)
      const many = Array.from({ length: 101 }, () => event())
      assert.strictEqual((yield* track(many, elsewhere())).status, 422)
      const text = JSON.stringify({ events: [event()] })
      const long = text + " ".repeat(65_536 - text.length)
      const send = (raw: string) => call("POST", path, { token: null, raw, headers: elsewhere() })
      assert.strictEqual((yield* send(long)).status, 202)
      assert.strictEqual((yield* send(`${long} `)).status, 413)
    })
  )

  it.effect("of one network have a budget of their own", () =>
    Effect.gen(function* () {
      const from = { "x-forwarded-for": "2001:db8:7:7::1" }
      const neighbour = { "x-forwarded-for": "2001:db8:7:7::2" }
      const answers = yield* Effect.forEach(Array.from({ length: 12 }), (_, i) =>
        track([event()], i % 2 === 0 ? from : neighbour)
      )
      const refused = answers.filter(({ status }) => status === 429)
      assert.isAtLeast(refused.length, 1)
      assert.isNotNull(refused[0]?.headers.get("retry-after"))
      assert.strictEqual((yield* track([event()], elsewhere())).status, 202)
    })
  )

  it.effect("tell nothing of steps: those are what the platform saw", () =>
    Effect.gen(function* () {
      const { call, sql, tenant } = yield* Plane
      const { engine } = yield* Db
      const deployments = yield* Deployments
      const mine = yield* tenant("unpaid")
      const other = yield* tenant()
      const funnel = (query = "", token = mine.adminKey) =>
        call("GET", `/v1/orgs/${mine.slug}/telemetry/funnel${query}`, { token })
      const counts = Effect.map(funnel(), ({ body }) =>
        body.steps.map(({ name, grain, count }: Record<string, unknown>) => [name, grain, count])
      )
      const [billing, deploy, agent] = ["billing_activated", "first_deploy_ready", "agent_connected"]
      assert.deepStrictEqual(yield* counts, [
        [billing, "organization", 0],
        [deploy, "organization", 0],
        [agent, "agent_grant", 0]
      ])
      for (const to of ["active", "past_due", "active"] as const)
        yield* moveBilling(engine, mine.slug, to, false, actor)
      // The statement that makes a deployment ready records it, however many there are.
      for (const uid of [randomUUID(), randomUUID()]) {
        yield* sql(`insert into deployment (org_id, uid, environment_uid, fence, created_at, state)
          values ('${mine.id}', '${uid}', '${randomUUID()}', 1, now(), 'starting')`)
        const ref = { orgId: mine.id, uid, fence: 1n }
        assert.isTrue(yield* deployments.moveTo(ref, ["starting"], "ready", "Ready"))
      }
      for (const id of [randomUUID(), randomUUID()])
        yield* sql(`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
          select '${mine.id}', '${id}', user_id, 'c', 'C', 'api', 'member', '{}' from member
          where org_id = '${mine.id}' and role = 'owner'`)
      assert.deepStrictEqual(yield* counts, [
        [billing, "organization", 1],
        [deploy, "organization", 1],
        [agent, "agent_grant", 2]
      ])
      const { body } = yield* funnel()
      assert.isAtMost(Date.parse(body.steps[2].firstAt), Date.parse(body.steps[2].lastAt))
      const before = new Date(Date.now() - dayMs).toISOString()
      assert.isNull((yield* funnel(`?until=${before}`)).body.steps[0].firstAt)

      const since = (days: number) => `?since=${new Date(Date.now() - days * dayMs).toISOString()}`
      assert.strictEqual((yield* funnel(since(89))).status, 200)
      assert.strictEqual((yield* funnel(since(91))).status, 422)
      assert.strictEqual((yield* funnel(since(-1))).status, 422)
      assert.strictEqual((yield* funnel("?since=now")).status, 422)
      const years = [
        ["?since=-000001-01-01T00:00:00Z&until=-000001-01-02T00:00:00Z", 422],
        ["?until=0001-01-02T00:00:00Z", 422],
        ["?since=%2B010000-01-01T00:00:00Z&until=%2B010000-01-02T00:00:00Z", 422],
        ["?since=0001-01-01T00:00:00Z&until=0001-01-02T00:00:00Z", 200],
        ["?since=9999-12-30T00:00:00Z&until=9999-12-31T23:59:59Z", 200]
      ] as const
      for (const [query, status] of years) assert.strictEqual((yield* funnel(query)).status, status, query)
      assert.strictEqual((yield* funnel("", mine.memberKey)).status, 403)
      assert.strictEqual((yield* funnel("", other.adminKey)).status, 404)
    })
  )
})

layer(testPlane({}, { SVC_TELEMETRY_KEY: key, SVC_TELEMETRY_PER_MINUTE: "10" }), {
  excludeTestServices: true
})("everybody's budget", (it) => {
  it.effect("bounds what comes from many networks", () =>
    Effect.gen(function* () {
      const answers = yield* Effect.forEach(Array.from({ length: 15 }), () => track([event()]))
      assert.isAtLeast(answers.filter(({ status }) => status === 429).length, 3)
    })
  )
})

layer(testPlane(), { excludeTestServices: true })("a platform without a key for telemetry", (it) => {
  it.effect("takes none, and has funnels all the same", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const refused = yield* track([event()])
      assert.strictEqual(refused.status, 503)
      assert.strictEqual(refused.body.code, "telemetry_not_configured")
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/telemetry/funnel")).status, 200)
    })
  )
})
