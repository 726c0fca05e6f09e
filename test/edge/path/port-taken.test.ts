/** A control plane whose edge cannot listen: everything else works, and it says which port it is. */
import * as net from "node:net"
import { expect, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { anEnvironment } from "./app.ts"

/** Another program's, on the port of the edge. */
class Holder extends Context.Service<Holder, { readonly port: number; readonly free: () => void }>()(
  "test/Holder"
) {}

const world = Layer.unwrap(
  Effect.gen(function* () {
    const [port, httpPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
    const server = net.createServer()
    yield* Effect.acquireRelease(
      Effect.promise(() => new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve))),
      () => Effect.sync(() => void server.close())
    )
    const plane = testPlane(
      { roles: new Set(["api", "engine", "edge"]) },
      { SVC_EDGE_HTTPS_PORT: String(port), SVC_EDGE_HTTP_PORT: String(httpPort) }
    )
    return Layer.merge(plane, Layer.succeed(Holder, { port, free: () => void server.close() }))
  })
)

layer(world, { excludeTestServices: true, timeout: "2 minutes" })("an edge whose port is taken", (it) => {
  it.effect("leaves environments ready with a note of it, and serves once the port is free", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { port, free } = yield* Holder
      const message = `another program listens on port ${port} of 127.0.0.1; choose another one (SVC_EDGE_HTTPS_PORT)`
      yield* eventually("the edge says why", sql("select fault from edge_node"), ([row]) =>
        String(row?.["fault"]).includes(message)
      )
      const { org, uid } = yield* anEnvironment(null)
      const { text } = yield* eventually(
        "it is ready",
        call("GET", `/v1/orgs/${org}/resources/${uid}`),
        ({ body }) =>
          body.conditions?.some(
            (one: { type: string; status: string }) =>
              one.type === "Ready" && one.status.toLowerCase() === "true"
          ) === true
      )
      expect(text).toContain("NoEdge")
      expect(text).toContain(message)
      free()
      yield* eventually(
        "an edge is at work",
        sql("select 1 from edge_node where alive_until > now() and fault is null"),
        (rows) => rows.length > 0
      )
    })
  )
})
