import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"
import { assert, describe, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as OpenApi from "effect/http-api/OpenApi"
import { Api } from "#src/api/definition/api.ts"
import { manifestJsonSchema } from "#src/manifest/json-schema.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { asDocumented, type Exchange } from "#test/setup/documented.ts"
import { compile, lint, writeTypes } from "#test/setup/typed-client.ts"

const temporary = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-openapi-"))),
  (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true }))
)

/** As somebody writes it who has nothing but the specification. */
const program = `
import createClient from "openapi-fetch"
import type { components, paths } from "./paths.ts"

const client = createClient<paths>({
  baseUrl: process.env["BASE"] ?? "",
  headers: { authorization: \`Bearer \${process.env["KEY"]}\` }
})
const org = { orgId: "main" }
const shop = { orgId: "main", projectId: "typed" }

const body = { name: "Typed", slug: "typed" }
const header = { "Idempotency-Key": "once" }
const made = await client.POST("/v1/orgs/{orgId}/projects", { params: { path: org, header }, body })
if (made.error !== undefined) throw new Error(made.error.detail)
const region: string | null = made.data.region
const again = await client.POST("/v1/orgs/{orgId}/projects", { params: { path: org, header }, body })

const manifest: components["schemas"]["ManifestDocument"] = {
  version: 1,
  organization: "main",
  projects: [
    {
      name: "Typed",
      slug: "typed",
      runtimeClass: "scale-to-zero",
      caches: [{ name: "sessions", region: "local", sku: "cache-n1" }]
    }
  ]
}
const plan = await client.POST("/v1/orgs/{orgId}/manifest/plan", {
  params: { path: org, query: { prune: false, confirm: ["typed"] } },
  body: manifest
})
if (plan.error !== undefined) throw new Error(plan.error.detail)
const exported = await client.GET("/v1/orgs/{orgId}/manifest", { params: { path: org } })
const first: string | undefined = exported.data?.projects?.[0]?.slug

const list = await client.GET("/v1/orgs/{orgId}/resources", {
  params: { path: org, query: { limit: 2, kind: "Project" } }
})
const budget = await client.GET("/v1/orgs/{orgId}/projects/{projectId}/budget", { params: { path: shop } })
const spent: number | undefined = budget.data?.spentUsd
const wrong = await client.POST("/v1/orgs/{orgId}/projects", {
  params: { path: org },
  body: { name: "Typed", slug: "NOT A SLUG" }
})

console.log(
  JSON.stringify({
    region,
    first,
    spent,
    replayed: again.response.headers.get("Idempotency-Replayed"),
    changes: plan.data.changes.map(({ action, kind }) => action + " " + kind),
    kinds: list.data?.items.map(({ kind }) => kind),
    fault: [wrong.error?.status, wrong.error?.errors?.[0]?.pointer]
  })
)

/** What the types must hold up, and what they must let through. */
export const neverCalled = async () => {
  // A body that may be absent.
  await client.POST("/v1/orgs/{orgId}/projects/{projectId}/database", { params: { path: shop } })
  await client.GET("/v1/orgs/{orgId}/resources", { params: { path: org, query: { ready: true, phase: "ready" } } })
  // @ts-expect-error A body that may not.
  await client.POST("/v1/orgs/{orgId}/projects", { params: { path: org } })
  // @ts-expect-error There is one version of manifests.
  await client.POST("/v1/orgs/{orgId}/manifest/plan", { params: { path: org }, body: { ...manifest, version: 2 } })
  // @ts-expect-error A limit is a number.
  await client.GET("/v1/orgs/{orgId}/resources", { params: { path: org, query: { limit: "2" } } })
  // @ts-expect-error An answer may have no region.
  const certain: string = made.data.region
  return certain
}
`

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("the served specification", (it) => {
  it.effect("passes every rule that a linter recommends, and names the server's public address", () =>
    Effect.gen(function* () {
      const { call, url } = yield* Plane
      const { body, text } = yield* call("GET", "/v1/spec", { token: null })
      assert.deepStrictEqual(body.servers, [{ url }])
      // A field with a default is required in the types that generators make of it, also in requests.
      assert.notInclude(text, '"default":')
      const folder = yield* temporary
      fs.writeFileSync(path.join(folder, "openapi.json"), text)
      const { code, output } = yield* Effect.promise(() => lint(folder, "openapi.json"))
      assert.strictEqual(code, 0, output)
    })
  )

  it.effect("has the manifest's JSON Schema beside it, for anybody, and not again for who has it", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const path = "/v1/manifest.schema.json"
      const { status, headers, body } = yield* call("GET", path, { token: null })
      assert.strictEqual(status, 200)
      assert.deepStrictEqual(body, manifestJsonSchema())
      assert.strictEqual(headers.get("content-type"), "application/schema+json")
      assert.strictEqual(headers.get("cache-control"), "public, max-age=300")
      const again = yield* call("GET", path, {
        token: null,
        headers: { "if-none-match": headers.get("etag") ?? "" }
      })
      assert.deepStrictEqual([again.status, again.text], [304, ""])
    })
  )

  it.effect("gives types that a strict compiler takes, to a client that the server understands", () =>
    Effect.gen(function* () {
      const { apiKey, call, url } = yield* Plane
      const folder = yield* temporary
      const { text } = yield* call("GET", "/v1/spec", { token: null })
      yield* Effect.promise(() => writeTypes(folder, text))
      fs.writeFileSync(path.join(folder, "program.ts"), program)
      const { code, output } = yield* Effect.promise(() => compile(folder, "program.ts"))
      assert.strictEqual(code, 0, output)
      const env = { ...process.env, BASE: url, KEY: apiKey }
      const { stdout } = yield* Effect.promise(() =>
        promisify(execFile)(process.execPath, ["program.ts"], { cwd: folder, env })
      )
      assert.deepStrictEqual(JSON.parse(stdout), {
        region: null,
        first: "typed",
        spent: 0,
        replayed: "true",
        changes: ["noop Project", "create Cache"],
        kinds: ["Project"],
        fault: [422, "/slug"]
      })
    })
  )
})

interface Schema {
  readonly $ref?: string
  readonly type?: unknown
}
interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>
}
interface Described {
  readonly operationId: string
  readonly parameters: ReadonlyArray<{ readonly $ref?: string; readonly name?: string }>
  readonly requestBody?: Content & { readonly required: boolean }
  readonly responses: Readonly<Record<string, Content & { readonly headers?: object }>>
}

describe("the specification", () => {
  const document = OpenApi.fromApi(Api)
  const text = JSON.stringify(document)
  const operations = Object.values(document.paths).flatMap(
    (item) => Object.values(item) as unknown as ReadonlyArray<Described>
  )
  const named = (id: string) => operations.find(({ operationId }) => operationId === id)

  it("says of every JSON body what is in it", () => {
    for (const { operationId, requestBody, responses } of operations) {
      for (const { content } of [requestBody ?? {}, ...Object.values(responses)]) {
        const schema = content?.["application/json"]?.schema
        if (schema === undefined || operationId === "system.spec") continue
        assert.isTrue(schema.$ref !== undefined || schema.type !== "string", operationId)
        assert.isNotEmpty(schema, operationId)
      }
    }
    const manifest = { $ref: "#/components/schemas/ManifestDocument" }
    for (const type of ["application/json", "application/yaml"]) {
      assert.deepStrictEqual(named("manifest.plan")?.requestBody?.content?.[type]?.schema, manifest)
      assert.deepStrictEqual(named("manifest.get")?.responses[200]?.content?.[type]?.schema, manifest)
    }
  })

  it("has numbers that are numbers, patterns of names, and formats of ids, times and addresses", () => {
    assert.notInclude(text, "Infinity")
    const { Cache, Name, Project, Webhook } = document.components.schemas as Record<
      string,
      { readonly pattern?: string; readonly properties: Readonly<Record<string, object>> }
    >
    assert.strictEqual(Name?.pattern, "^[a-z][a-z0-9-]{1,61}$")
    const { EnvironmentSlug, Uid, VariableKey } = document.components.schemas
    for (const schema of [EnvironmentSlug, Uid, VariableKey]) assert.property(schema, "pattern")
    for (const id of ["orgs.create", "apikeys.create"]) {
      const body = named(id)?.requestBody?.content?.["application/json"]?.schema
      assert.containSubset(body, { properties: { name: { type: "string" } } })
      assert.nestedProperty(body, "properties.name.pattern")
    }
    assert.containSubset(Cache?.properties, { id: { format: "uuid" }, createdAt: { format: "date-time" } })
    assert.containSubset(Webhook?.properties["url"], { type: "string", format: "uri" })
    assert.containSubset(Project?.properties["region"], { type: ["string", "null"] })
  })

  it("asks for bodies only where an operation needs one", () => {
    const optional = operations.filter(({ requestBody }) => requestBody?.required === false)
    assert.sameMembers(
      optional.map(({ operationId }) => operationId),
      ["backups.create", "database.provision"]
    )
  })

  it("has the header fields of requests and answers", () => {
    const { parameters, responses } = named("caches.update")!
    assert.includeMembers(
      parameters.map(({ $ref }) => $ref),
      ["#/components/parameters/If-Match", "#/components/parameters/X-Request-Id"]
    )
    assert.hasAllKeys(responses[200]?.headers, ["ETag", "X-Request-Id", "RateLimit", "RateLimit-Policy"])
    const read = named("caches.get")!
    assert.include(
      read.parameters.map(({ $ref }) => $ref),
      "#/components/parameters/If-None-Match"
    )
    assert.propertyVal(read.responses[304], "$ref", "#/components/responses/NotModified")
    assert.property(named("caches.create")?.responses[201]?.headers, "Idempotency-Replayed")
    const { Problem401, Problem429, Problem503 } = (
      document.components as unknown as { responses: Record<string, { headers: object }> }
    ).responses
    assert.property(Problem401?.headers, "WWW-Authenticate")
    for (const problem of [Problem429, Problem503]) assert.property(problem?.headers, "Retry-After")
  })

  it("is small, because what operations share is in it once", () => {
    assert.isBelow(text.length, 640_000)
    assert.lengthOf(text.match(/"The credential may not do this"/g) ?? [], 1)
    assert.lengthOf(text.match(/"Id or slug of the project"/g) ?? [], 1)
  })
})

describe("an answer in a test", () => {
  const health = {
    method: "GET",
    path: "/v1/health",
    sent: undefined,
    status: 200,
    headers: new Headers({ "content-type": "application/json", "x-request-id": "a" }),
    text: '{"ok":true,"service":"svc"}'
  }
  const differs = (change: Partial<Exchange>) => () => asDocumented({ ...health, ...change })

  it("is held against the specification: status, header fields, type and body", () => {
    assert.doesNotThrow(differs({}))
    assert.throws(differs({ status: 418 }), "this status")
    assert.throws(differs({ text: '{"ok":"yes","service":"svc"}' }), "data/ok must be boolean")
    assert.throws(differs({ text: '{"ok":true,"service":"svc","more":1}' }), "additional properties")
    assert.throws(differs({ headers: new Headers({ "content-type": "text/html" }) }), "the type text/html")
    const headers = new Headers([...health.headers, ["etag", '"1"']])
    assert.throws(differs({ headers }), "ETag")
  })
})
