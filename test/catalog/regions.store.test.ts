/** A catalogue with regions of an operator's own, of which this process serves the first. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { newUser } from "#test/cli/svc.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const catalog = `regions:
  - { id: zurich, name: Cellar, city: Zurich, country: CH, continent: Europe }
  - { id: oslo-2, name: Attic, city: Oslo, country: NO, continent: Europe }
`
const catalogFile = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
    (made) => Effect.sync(() => fs.rmSync(made, { recursive: true }))
  ),
  (folder) => {
    const file = path.join(folder, "catalog.yaml")
    fs.writeFileSync(file, catalog)
    return file
  }
)
const plane = Layer.unwrap(
  Effect.map(catalogFile, (file) =>
    testPlane({ region: "zurich", containerSocket: "none" }, { SVC_CATALOG: file })
  )
)

const project = { name: "Shop", slug: "shop", runtimeClass: "scale-to-zero" }
const base = "/v1/orgs/main/projects/shop"
const execution = { image: "alpine:3", command: ["true"] }
const manifest = (values: object) => ({
  version: 1,
  organization: "main",
  projects: [{ ...project, ...values }]
})
const cache = (name: string, region: string, values: object = {}) => ({ name, region, ...values })

interface Problem {
  readonly pointer: string
  readonly message: string
}
const faults = (listed: ReadonlyArray<Problem>) => listed.map(({ pointer, message }) => [pointer, message])

layer(plane, { excludeTestServices: true, timeout: "2 minutes" })("regions of a catalogue", (it) => {
  it.effect(
    "what is to be in another region is refused, by the name of the field and with those there are",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        yield* call("POST", "/v1/orgs/main/projects", { body: project })
        const far = { ...project, slug: "far", region: "local" }
        for (const [method, target, body] of [
          ["POST", "/v1/orgs/main/projects", far],
          ["PATCH", base, { region: "local" }],
          ["POST", `${base}/caches`, { name: "one", sku: "cache-n1", region: "local" }],
          ["POST", `${base}/database`, { region: "local" }],
          ["POST", `${base}/executions`, { ...execution, region: "local" }]
        ] as const) {
          const refused = yield* call(method, target, { body })
          assert.strictEqual(refused.status, 422, target)
          assert.deepStrictEqual(faults(refused.body.errors), [["/region", "must be one of: zurich, oslo-2"]])
        }
        const planned = yield* call("POST", "/v1/orgs/main/manifest/plan", {
          body: manifest({ region: "moon", caches: [cache("one", "oslo-2"), cache("two", "local")] })
        })
        assert.deepStrictEqual(faults(planned.body.blockers), [
          ["/projects/0/region", "must be one of: zurich, oslo-2"],
          ["/projects/0/caches/1/region", "must be one of: zurich, oslo-2"]
        ])
      })
  )

  it.effect("without a region the first one is meant, by the API, the manifest and the command line", () =>
    Effect.gen(function* () {
      const { call, sql, url, apiKey, session } = yield* Plane
      // The answer comes when the server is ready, which it never is here.
      yield* Effect.forkScoped(call("POST", `${base}/database`))
      const database = yield* eventually(
        "the database is placed",
        call("GET", `${base}/database`),
        ({ body }) => body.region === "zurich"
      )
      const branches = `${base}/databases/${database.body.id}/branches`
      const branch = { name: "copy", environment: "production", sku: "db-n1", source: { kind: "current" } }
      for (const [region, status, said] of [
        ["moon", 404, []],
        ["oslo-2", 422, ["/region", "must be the region of its database, which is zurich"]]
      ] as const) {
        const refused = yield* call("POST", branches, { token: session, body: { ...branch, region } })
        assert.strictEqual(refused.status, status)
        assert.deepStrictEqual(faults(refused.body.errors ?? []).flat(), [...said])
      }
      const databaseBranch = { sourceEnvironment: "production", sourceDatabase: "main" }
      const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
        body: { manifest: manifest({ previewData: "allowed", databaseBranch }) }
      })
      assert.strictEqual(applied.status, 202, applied.text)
      const [planned] = yield* sql(
        "select spec ->> 'region' as region from resource where kind = 'DatabaseBranch'"
      )
      assert.deepStrictEqual(planned, { region: "zurich" })

      const user = yield* newUser
      user.signIn({ apiUrl: url, organization: "main", apiKey, session })
      const regionOf = Effect.fnUntraced(function* (...flags: ReadonlyArray<string>) {
        const args = ["executions", "run", "shop", "alpine:3", "--no-wait", "--json", ...flags, "--", "true"]
        const { stdout, stderr } = yield* user.svc(args)
        assert.strictEqual(stderr, "")
        return JSON.parse(stdout).region
      })
      assert.strictEqual(yield* regionOf(), "zurich")
      assert.strictEqual(yield* regionOf("--region", "oslo-2"), "oslo-2")
    })
  )

  it.effect(
    "what is in a region that no process serves is pending, and can be read, changed and deleted",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
          body: { manifest: manifest({ caches: [cache("here", "zurich"), cache("there", "oslo-2")] }) }
        })
        assert.strictEqual(applied.status, 202, applied.text)
        const named = (name: string) =>
          Effect.map(call("GET", `${base}/caches`), ({ body }) =>
            body.find((one: { readonly name: string }) => one.name === name)
          )
        const { id: here } = yield* named("here")
        const there = yield* named("there")
        yield* eventually(
          "this process works on its own region",
          call("GET", `/v1/orgs/main/resources/${here}`),
          ({ body }) => body.phase !== "pending"
        )
        const resource = yield* call("GET", `/v1/orgs/main/resources/${there.id}`)
        assert.deepStrictEqual(
          [resource.body.phase, there.region, there.status],
          ["pending", "oslo-2", "provisioning"]
        )
        const one = `${base}/caches/${there.id}`
        assert.strictEqual((yield* call("PATCH", one, { body: { persistence: "none" } })).status, 200)
        assert.strictEqual((yield* call("DELETE", one, { token: (yield* Plane).session })).status, 200)
      })
  )

  it.effect(
    "what is in a region that the catalogue has no longer can be read, changed, exported and planned",
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
          body: { manifest: manifest({ region: "oslo-2", caches: [cache("old", "oslo-2")] }) }
        })
        assert.strictEqual(applied.status, 202, applied.text)
        yield* sql(
          `update resource set spec = jsonb_set(spec, '{region}', '"local"') where kind in ('Cache', 'Project')`
        )
        const listed = yield* call("GET", `${base}/caches`)
        const old = listed.body.find((one: { readonly name: string }) => one.name === "old")
        assert.strictEqual(old.region, "local")
        const one = `${base}/caches/${old.id}`
        assert.strictEqual((yield* call("PATCH", one, { body: { persistence: "none" } })).status, 200)
        const renamed = yield* call("PATCH", base, { body: { name: "Store" } })
        assert.deepStrictEqual([renamed.status, renamed.body.region], [200, "local"])
        const exported = yield* call("GET", "/v1/orgs/main/manifest")
        const planned = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: exported.body })
        assert.deepStrictEqual(planned.body.blockers, [])
        assert.include(planned.body.summary, { create: 0, update: 0, replace: 0, delete: 0 })
      })
  )
})

it.live(
  "a process does not start that is to work in a region which the catalogue does not have; one that only answers does",
  () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Layer.build(testPlane({ region: "moon" })))
      assert.strictEqual(error._tag, "UnknownServedRegion")
      assert.strictEqual(
        error.message,
        'This process is to serve the region "moon" (SVC_REGION), and the catalogue has only: local'
      )
      yield* Layer.build(testPlane({ region: "moon", roles: new Set(["api"] as const) }))
    }).pipe(Effect.scoped)
)
