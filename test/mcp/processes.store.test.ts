/** Several processes behind one address: every request may reach another one, in every revision of the protocol. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connect, initialize, lines, post } from "./clients.ts"

layer(testPlane(), { excludeTestServices: true })("MCP over two processes", (it) => {
  it.effect("clients of both lines never notice which one answers", () =>
    Effect.gen(function* () {
      const { url, apiKey } = yield* Plane
      const other = yield* anotherApi()
      for (const line of lines) {
        const asked = { [url]: 0, [other]: 0 }
        let turn = 0
        const balanced: typeof fetch = (input, init) => {
          const to = turn++ % 2 === 0 ? url : other
          asked[to] = (asked[to] ?? 0) + 1
          return fetch(String(input).replace(url, to), init)
        }
        const { client, call } = yield* connect(line, url, { token: apiKey, fetch: balanced })
        for (let round = 0; round < 3; round++) {
          yield* Effect.promise(() => client.listTools())
          const answer = yield* call("execute", { operation: "projects.list" })
          assert.isFalse(answer.isError)
        }
        assert.isAtLeast(asked[url] ?? 0, 3)
        assert.isAtLeast(asked[other] ?? 0, 3)
      }
    }).pipe(Effect.scoped)
  )

  it.effect("every revision with a handshake is spoken, and none has a session", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      for (const protocolVersion of ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]) {
        const { answer, headers } = yield* post(url, {
          ...initialize,
          params: { ...initialize.params, protocolVersion }
        })
        assert.strictEqual(answer.result.protocolVersion, protocolVersion)
        assert.isNull(headers.get("mcp-session-id"))
        const listed = yield* post(
          url,
          { jsonrpc: "2.0", id: 2, method: "tools/list" },
          { "mcp-protocol-version": protocolVersion, "mcp-session-id": "of another life" }
        )
        assert.strictEqual(listed.answer.result.tools.length, 2)
      }
      const { version } = yield* connect("v2", url)
      assert.strictEqual(version, "2026-07-28")
    })
  )
})
