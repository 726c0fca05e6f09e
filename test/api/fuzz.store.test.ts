/**
 * Every operation of the API is sent what nobody should send. Whatever comes, the answer is never a fault of the
 * server, and every refusal has the form of a problem.
 */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as fc from "fast-check"
import { Api } from "#src/api/definition/api.ts"
import { ProblemBody } from "#src/api/definition/problem.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { bodies, fitting, type JsonSchema, parameters } from "#test/setup/json-fuzz.ts"

interface Described {
  readonly operationId: string
  readonly parameters?: ReadonlyArray<{
    readonly name: string
    readonly in: string
    readonly schema: JsonSchema
  }>
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: JsonSchema }>> }
  readonly "x-risk": string
}

/** One of everything that paths name, in an organization of its own. */
interface Fixture {
  readonly tenant: Tenant
  readonly ids: ReadonlyMap<string, string>
}

const manifest = (organization: string) => ({
  version: 1,
  organization,
  projects: [
    {
      name: "Shop",
      slug: "shop",
      runtimeClass: "scale-to-zero",
      previewData: "allowed",
      env: { KEY: "value" },
      environments: { staging: {} },
      databases: [{ name: "main", sku: "db-n1", region: "local" }],
      caches: [{ name: "sessions", region: "local" }],
      queues: [{ name: "mail" }],
      crons: [
        {
          name: "nightly",
          environment: "production",
          schedule: "0 0 1 1 *",
          target: { kind: "http", path: "/" }
        }
      ]
    }
  ]
})

const kindOf: Readonly<Record<string, string>> = {
  Environment: "environmentId",
  Database: "databaseId",
  DatabaseBranch: "branchId",
  Cache: "cacheId",
  Queue: "queueId",
  Cron: "cronId"
}

const newFixture = Effect.gen(function* () {
  const { call, tenant: newTenant } = yield* Plane
  const tenant = yield* newTenant()
  const org = `/v1/orgs/${tenant.slug}`
  const token = tenant.owner
  const applied = yield* call("POST", `${org}/manifest/apply`, {
    token,
    body: { manifest: manifest(tenant.slug) }
  })
  assert.strictEqual(applied.status, 202, applied.text)
  const ids = new Map([
    ["orgId", tenant.slug],
    ["projectId", "shop"],
    ["key", "KEY"]
  ])
  const { body } = yield* call("GET", `${org}/resources?limit=100`, { token })
  for (const { kind, uid } of body.items) {
    ids.set("uid", uid)
    const param = kindOf[kind]
    if (param !== undefined) ids.set(param, uid)
  }
  const [member] = (yield* call("GET", `${org}/members`, { token: tenant.member })).body
  ids.set("memberId", member.id)
  const [key] = (yield* call("GET", `${org}/api-keys`, { token })).body
  ids.set("keyId", key.id)
  const fixture: Fixture = { tenant, ids }
  return fixture
})

const credentials = ["owner", "owner", "owner", "adminKey", "member", "none"] as const
const contentTypes = [
  ...["application/json", "application/json", "application/json", "application/json"],
  ...["application/yaml", "text/plain", "application/json; charset=utf-16", "multipart/form-data", "a"],
  "application/json; x=yaml"
]

/** What one request to an operation consists of, besides what its path names in the fixture. */
const requests = (
  path: string,
  { parameters: all = [], requestBody }: Described,
  root: Record<string, JsonSchema>
) => {
  const inQuery = all.filter((one) => one.in === "query")
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name)
  const schema = requestBody?.content["application/json"]?.schema
  const fit = path.endsWith("/manifest/plan")
    ? fc.constant(manifest("{org}"))
    : path.endsWith("/manifest/apply")
      ? fc.constant({ manifest: manifest("{org}") })
      : fitting(schema ?? {}, root)
  const option = <A>(arbitrary: fc.Arbitrary<A>, freq: number) =>
    fc.option(arbitrary, { nil: undefined, freq })
  return fc.record({
    credential: fc.constantFrom(...credentials),
    // Mostly what is there: the rest ends at the gate.
    strange: fc.array(fc.tuple(fc.constantFrom("", ...names), parameters(fc.uuid())), { maxLength: 1 }),
    query: fc.record(
      Object.fromEntries(inQuery.map((one) => [one.name, parameters(fitting(one.schema, root))])),
      { requiredKeys: [] }
    ),
    unknown: fc.boolean(),
    body: requestBody === undefined ? fc.constant(undefined) : option(bodies(fit), 10),
    contentType: fc.constantFrom(...contentTypes),
    ifMatch: option(fc.constantFrom('"1"', "*", "W/", ",", '"\u00ff"', "x".repeat(5_000)), 1),
    idempotencyKey: option(fc.constantFrom("k", "key 1", "\u00ff", "k".repeat(256)), 1)
  })
}
type Request = ReturnType<typeof requests> extends fc.Arbitrary<infer R> ? R : never

const nested = (open: string, close: string, depth: number) =>
  Buffer.from(`${open.repeat(depth)}1${close.repeat(depth)}`)
/** Whatever is drawn, operations that read a body are sent these: each of them all, or one of them in turn. */
const always: ReadonlyArray<[Request]> = [
  nested("[", "]", 8_000),
  nested('{"a":', "}", 3_000),
  Buffer.from('"\ud800\u0000"'),
  Buffer.from([0x22, 0xff, 0x22]),
  Buffer.from("1e999")
].map((body) => [
  {
    credential: "owner",
    strange: [],
    query: {},
    unknown: false,
    body,
    contentType: "application/json",
    ifMatch: undefined,
    idempotencyKey: undefined
  }
])

/** No engine runs, so what waits for one would wait long: it finds at once that the engine gave up. */
const givenUp = [
  `create or replace function given_up() returns trigger language plpgsql as $$
    begin new.phase := 'failed'; new.observed_generation := new.generation; return new; end $$`,
  "create or replace trigger given_up before insert or update on resource for each row execute function given_up()"
]
/** The server's own word that it works and the far end does not. */
const notItsFault = "rotation_pending"

const isProblem = Schema.is(ProblemBody)

const settings = { roles: new Set(["api"] as const), signInRateLimit: 1_000_000, rateLimit: 1_000_000 }
const variables = { SVC_TELEMETRY_KEY: Buffer.alloc(32, 1).toString("base64") }

layer(testPlane(settings, variables), { excludeTestServices: true })("whatever is sent", (it) => {
  campaign(
    it.effect,
    "fuzz",
    "the server has no fault whatever is sent, and says in the usual form what is wrong with the request",
    // A request takes milliseconds, or a tenth of a second where passwords are digested.
    { roundMs: 1_500_000 },
    Effect.fnUntraced(function* ({ seed, full }) {
      const numRuns = full ? 25 : 6
      const { call, url, sql } = yield* Plane
      for (const statement of givenUp) yield* sql(statement)
      const run = Effect.runPromiseWith(yield* Effect.context<Plane>())
      const spec = (yield* call("GET", "/v1/spec", { token: null })).body
      const operations = Object.entries<Record<string, Described>>(spec.paths)
        // Where the API is OpenAI's, errors are too. What browsers send has tests of its own.
        .filter(([path]) => !/^\/v1\/(runtime|speed-insights)\//.test(path))
        .flatMap(([path, methods]) =>
          Object.entries(methods).map(([method, described]) => ({
            path,
            method: method.toUpperCase(),
            described
          }))
        )
      const endpoints = Object.values(Api.groups).flatMap((group) => Object.values(group.endpoints))
      assert.strictEqual(operations.length, endpoints.length)

      let fixture = yield* newFixture
      const seen = new Map<number, number>()
      const send = async (path: string, method: string, request: Request) => {
        const { tenant, ids } = fixture
        const strange = new Map(request.strange)
        const target = path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
          encodeURIComponent((strange.get(name) ?? ids.get(name) ?? "0").toWellFormed()).replaceAll(
            /^\.+$/g,
            "%2E"
          )
        )
        const query = new URLSearchParams()
        for (const [name, value] of Object.entries(request.query)) query.append(name, value ?? "")
        if (request.unknown && strange.size > 0) query.append("unknown", "1")
        const token = request.credential === "none" ? undefined : tenant[request.credential]
        const bytes = request.body
        const sent = Buffer.from(bytes ?? []).includes("{org}")
          ? Buffer.from(
              Buffer.from(bytes ?? [])
                .toString("latin1")
                .replaceAll("{org}", tenant.slug),
              "latin1"
            )
          : bytes
        const response = await fetch(`${url}${target}?${query}`, {
          method,
          signal: AbortSignal.timeout(120_000),
          headers: {
            ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
            ...(bytes === undefined ? {} : { "content-type": request.contentType }),
            ...(request.ifMatch === undefined ? {} : { "if-match": request.ifMatch }),
            ...(request.idempotencyKey === undefined ? {} : { "idempotency-key": request.idempotencyKey })
          },
          ...(sent === undefined ? {} : { body: new Uint8Array(sent) })
        })
        seen.set(response.status, (seen.get(response.status) ?? 0) + 1)
        // Some answers go on for ever.
        const text = response.status < 400 ? "" : await response.text()
        if (response.status < 400) await response.body?.cancel()
        if (!text.includes(`"code":"${notItsFault}"`)) assert.isBelow(response.status, 500, text)
        if (response.status >= 400) {
          assert.strictEqual(
            response.headers.get("content-type"),
            "application/problem+json",
            `${response.status}`
          )
          const body: unknown = JSON.parse(text)
          assert.isTrue(isProblem(body), text)
          assert.propertyVal(body, "status", response.status)
        }
        return response.status
      }

      for (const [index, { path, method, described }] of operations.entries()) {
        const examples = full ? always : always.filter((_, i) => i === index % always.length)
        const changes = described["x-risk"] !== "read"
        const property = fc.asyncProperty(
          requests(path, described, spec.components.schemas),
          async (request) => {
            const status = await send(path, method, request)
            // What was taken away, or signed out, is made anew for the next request.
            const lost = changes && (method === "DELETE" || /auth|abandon|sessions/.test(path))
            if (status < 400 && lost) fixture = await run(newFixture)
          }
        )
        const outcome = yield* Effect.promise(() =>
          fc.check(property, {
            seed,
            numRuns,
            examples: described.requestBody === undefined ? [] : [...examples]
          })
        )
        const why = outcome.failed
          ? `${String(outcome.errorInstance)}\n${fc.defaultReportMessage(outcome)}`
          : ""
        assert.isFalse(outcome.failed, `${method} ${path}, ${why}`)
      }
      // Of all that was sent some got past the gate, and some past validation.
      for (const status of [200, 422, 404, 403, 401, 400])
        assert.isAtLeast(seen.get(status) ?? 0, 1, `${status}`)
    })
  )
})
