/** What a resource waits for is part of how it is shown. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { ResourcePage } from "#src/resources/api.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

layer(testPlane(), { excludeTestServices: true })("a resource that waits", (it) => {
  it.effect("names what it waits for, in lists and by itself; others name nothing", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      const manifest = {
        version: 1,
        organization: "main",
        projects: [
          {
            name: "Waits",
            slug: "waits",
            runtimeClass: "always-on",
            databases: [{ name: "main", sku: "db-n1", region: "local" }]
          }
        ]
      }
      const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", { body: { manifest } })
      assert.strictEqual(applied.status, 202, applied.text)
      // No server can be started here: the database stays as it is, and its copy waits.
      const found = yield* call("GET", "/v1/orgs/main/resources?project=waits&kind=Database")
      const database = String(found.body.items[0].uid)
      const branch = yield* call("POST", `/v1/orgs/main/projects/waits/databases/${database}/branches`, {
        token: session,
        body: {
          name: "copy",
          environment: "production",
          region: "local",
          sku: "db-n1",
          source: { kind: "current" }
        }
      })
      assert.strictEqual(branch.status, 202, branch.text)
      const list = yield* eventually(
        "the copy waits",
        call("GET", "/v1/orgs/main/resources?project=waits&kind=DatabaseBranch"),
        ({ body }) => body.items[0]?.waitingOn != null
      )
      yield* fits(ResourcePage, list.body)
      assert.strictEqual(list.body.items[0].waitingOn, found.body.items[0].address)
      const own = yield* call("GET", `/v1/orgs/main/resources/${database}`)
      assert.isNull(own.body.waitingOn)
    })
  )
})
