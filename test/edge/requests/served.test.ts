/** Requests through a real edge to an app, and what its organization reads of them. */
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { anApp, echo } from "#test/edge/path/app.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { TestEdge, testEdge } from "#test/setup/edge.ts"
import { eventually } from "#test/setup/wait.ts"

layer(testEdge(), { excludeTestServices: true, timeout: "2 minutes" })("requests through an edge", (it) => {
  it.effect("are in the log of their environment, without query and address", () =>
    Effect.gen(function* () {
      const { request, request2, requestPlain } = yield* TestEdge
      const { call } = yield* Plane
      const { host, environments } = yield* anApp((asked, answer) => {
        if (asked.url?.startsWith("/missing") === true) answer.statusCode = 404
        if (asked.url === "/broken") return void asked.socket.destroy()
        echo(asked, answer)
      })
      yield* request(host, "/one?token=secret", { method: "POST", body: "x".repeat(1000) })
      yield* request2(host, "/missing?token=secret")
      yield* request(host, "/broken")
      yield* requestPlain(host, "/plain")
      yield* request2(host, "/last")
      const listed = yield* eventually(
        "the requests are stored",
        call("GET", `${environments}/production/requests?limit=100`),
        ({ body }) => body.items?.some(({ path }: { path: string }) => path === "/last")
      )
      const items: ReadonlyArray<Record<string, unknown>> = listed.body.items
      assert.deepStrictEqual(
        items
          .slice(0, 5)
          .map((one) => [one["method"], one["host"], one["path"], one["status"], one["outcome"]]),
        [
          ["GET", host, "/last", 200, "completed"],
          ["GET", host, "/plain", 308, "completed"],
          ["GET", host, "/broken", 502, "app_closed"],
          ["GET", host, "/missing", 404, "completed"],
          ["POST", host, "/one", 200, "completed"]
        ]
      )
      assert.isAbove(Number(items[4]?.["bytesIn"]), 1000)
      assert.notInclude(listed.text, "secret")
      assert.notInclude(listed.text, "127.0.0.1")
    })
  )

  it.effect("that come to nothing before they are one are neither in a log nor counted as lost", () =>
    Effect.gen(function* () {
      const { request, tlsTo } = yield* TestEdge
      const { call, metricsUrl } = yield* Plane
      const { host, environments } = yield* anApp(echo)
      const unknown = yield* Effect.promise(
        () =>
          new Promise<string>((resolve) => {
            const socket = tls.connect(tlsTo("nobody.example.com"), () => resolve("a handshake"))
            socket.once("error", () => resolve("none"))
          })
      )
      assert.strictEqual(unknown, "none")
      yield* request(host, "/after")
      yield* eventually(
        "the request is stored",
        call("GET", `${environments}/production/requests?limit=100`),
        ({ body }) => body.items?.some(({ path }: { path: string }) => path === "/after")
      )
      const metrics = yield* Effect.promise(async () => (await fetch(`${metricsUrl}/metrics`)).text())
      assert.include(metrics, "svc_edge_requests_total")
      assert.notMatch(metrics, /^svc_edge_requests_dropped_total.* [1-9]/m)
    })
  )
})
