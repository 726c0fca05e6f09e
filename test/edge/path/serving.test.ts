/** What an edge does with requests: a real HAProxy, one control plane, apps of this process. */
import { expect, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { TestEdge, testEdge } from "#test/setup/edge.ts"
import { anApp, echo } from "./app.ts"

layer(testEdge(), { excludeTestServices: true, timeout: "2 minutes" })("an edge", (it) => {
  it.effect("serves an environment at its managed address, over HTTP/1.1 and HTTP/2", () =>
    Effect.gen(function* () {
      const { request, request2 } = yield* TestEdge
      const { host } = yield* anApp(echo)
      const one = yield* request(host, "/hello?x=1")
      expect(one.status).toBe(200)
      expect(JSON.parse(one.text)).toMatchObject({ method: "GET", url: "/hello?x=1" })
      const two = yield* request2(host, "/hello?x=1")
      expect(two.status).toBe(200)
    })
  )
})
