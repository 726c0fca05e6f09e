/** A machine without HAProxy: everything but the edge works there, and it says how to get one. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ProgramFolders } from "#src/infra/host/Host.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { anEnvironment } from "./app.ts"

const world = Layer.unwrap(
  Effect.map(
    Effect.promise(() => Promise.all([freePort(), freePort()])),
    ([httpsPort, httpPort]) =>
      testPlane(
        { roles: new Set(["api", "engine", "edge"]) },
        { SVC_EDGE_HTTPS_PORT: String(httpsPort), SVC_EDGE_HTTP_PORT: String(httpPort) }
      )
  )
).pipe(Layer.provide(Layer.succeed(ProgramFolders, ["/nonexistent"])))

layer(world, { excludeTestServices: true })("a machine without HAProxy", (it) => {
  it.effect("says how to install it, keeps environments ready, and adds and removes no domain", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const line = "apt-get install -y --no-install-recommends haproxy"
      yield* eventually("the edge says what is missing", sql("select fault from edge_node"), ([row]) =>
        String(row?.["fault"]).includes(line)
      )
      const { org, project, uid } = yield* anEnvironment(null)
      const { text } = yield* eventually(
        "the environment is ready",
        call("GET", `/v1/orgs/${org}/resources/${uid}`),
        ({ body }) =>
          body.conditions?.some(
            (one: { type: string; status: string }) =>
              one.type === "Ready" && one.status.toLowerCase() === "true"
          ) === true
      )
      assert.include(text, "NoEdge")
      assert.include(text, line)

      const base = `/v1/orgs/${org}/projects/${project.id}/domains`
      const refused = yield* call("POST", base, { body: { hostname: "www.customer.example" } })
      assert.strictEqual(refused.status, 502, refused.text)
      assert.strictEqual(refused.body.code, "edge_unreachable")
      assert.deepStrictEqual((yield* call("GET", base)).body, [])
      for (const table of ["domain_claim", "edge_certificate where org_id is not null"])
        assert.deepStrictEqual(yield* sql(`select 1 from ${table}`), [], table)
    })
  )
})
