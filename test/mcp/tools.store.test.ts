/** The two tools, as clients of both lines of the official SDK use them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connect, lines } from "./clients.ts"

layer(testPlane(), { excludeTestServices: true })("MCP tools", (it) => {
  for (const line of lines) {
    it.effect(`a stranger with ${line} lists tools and searches, and cannot execute`, () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const { client, call } = yield* connect(line, url)
        const { tools } = yield* Effect.promise(() => client.listTools())
        assert.deepStrictEqual(
          tools.map(({ name, annotations }) => [
            name,
            annotations?.readOnlyHint,
            annotations?.destructiveHint
          ]),
          [
            ["search", true, false],
            ["execute", false, true]
          ]
        )
        const found = yield* call("search", { query: "create a cache" })
        assert.strictEqual(found.content.operations[0].id, "caches.create")
        const refused = yield* Effect.promise(() =>
          client.callTool({ name: "execute", arguments: { operation: "caches.list" } }).then(
            () => "let in",
            (error: unknown) => String(error)
          )
        )
        assert.include(refused, "Sign in, or send an API key")
      })
    )

    it.effect(`a key with ${line} runs operations in its organization`, () =>
      Effect.gen(function* () {
        const { url, tenant } = yield* Plane
        const { adminKey, slug } = yield* tenant()
        const { call } = yield* connect(line, url, { token: adminKey })
        const made = yield* call("execute", {
          operation: "projects.create",
          body: { name: "Web", slug: "web" }
        })
        assert.deepStrictEqual(
          [made.isError, made.content.status, made.content.body.slug],
          [false, 201, "web"]
        )
        const project = yield* call("execute", {
          operation: "projects.get",
          path: { projectId: "web", orgId: slug }
        })
        assert.strictEqual(project.content.body.id, made.content.body.id)
        const fault = yield* call("execute", { operation: "projects.create", body: { name: 1 } })
        assert.deepStrictEqual([fault.isError, fault.content.status], [true, 422])
        assert.include(
          fault.content.error.errors.map((one: { pointer: string }) => one.pointer),
          "/name"
        )
      })
    )
  }
})
