// biome-ignore-all lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { CacheCredentials, CacheList, CacheView } from "#src/caches/api.ts"
import { DatabaseView } from "#src/databases/api.ts"
import { VariableList } from "#src/env/api.ts"
import { EnvironmentView, ProjectList, ProjectView } from "#src/projects/api.ts"
import { EventPage, ResourceDetail, ResourcePage } from "#src/resources/api.ts"
import { CallerView } from "#src/system/api.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("answers", (it) => {
  it.effect("are exactly what the specification says, and stay in no cache on the way", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const project = yield* call("POST", "/v1/orgs/main/projects", {
        body: {
          name: "Shop",
          slug: "shop",
          runtimeClass: "always-on",
          region: "local",
          git: { repo: "a/b", ref: "main" }
        }
      })
      yield* fits(ProjectView, project.body)
      const one = "/v1/orgs/main/projects/shop"
      const cache = yield* call("POST", `${one}/caches`, {
        body: { name: "one", sku: "cache-n1", region: "local" }
      })
      yield* fits(CacheCredentials, cache.body)
      yield* call("PUT", `${one}/env`, { body: { vars: [{ key: "A", value: "1" }] } })
      yield* call("POST", `${one}/database`)
      const resource = `/v1/orgs/main/resources/${cache.body.id}`
      const reads: ReadonlyArray<readonly [path: string, schema: Schema.ConstraintDecoder<unknown>]> = [
        ["/v1/orgs/main/projects", ProjectList],
        [one, ProjectView],
        [`${one}/environments`, Schema.Array(EnvironmentView)],
        [`${one}/caches`, CacheList],
        [`${one}/caches/${cache.body.id}`, CacheView],
        [`${one}/database`, DatabaseView],
        [`${one}/env`, VariableList],
        ["/v1/orgs/main/resources?limit=100", ResourcePage],
        [resource, ResourceDetail],
        [`${resource}/events`, EventPage],
        ["/v1/me", CallerView]
      ]
      for (const [path, schema] of reads) {
        const answer = yield* call("GET", path)
        assert.strictEqual(answer.status, 200, path)
        yield* fits(schema, answer.body)
        assert.strictEqual(answer.headers.get("cache-control"), "no-store", path)
        assert.strictEqual(answer.headers.get("x-content-type-options"), "nosniff", path)
      }
      // Times are UTC, with milliseconds.
      assert.match(project.body.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    })
  )

  it.effect("carry statuses that the specification of their operation names, typed as problems", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { body } = yield* call("GET", "/v1/spec", { token: null })
      const references = JSON.stringify(body).matchAll(/"\$ref":"#\/components\/(\w+)\/([^"]+)"/g)
      for (const [, kind, name] of references) assert.property(body.components[kind ?? ""], name ?? "")
      const ids = new Set<string>()
      for (const [address, path] of Object.entries<any>(body.paths)) {
        for (const operation of Object.values<any>(path)) {
          assert.isFalse(ids.has(operation.operationId), operation.operationId)
          ids.add(operation.operationId)
          assert.isString(operation["x-risk"])
          for (const [status, response] of Object.entries<any>(operation.responses)) {
            // Where the API is OpenAI's, errors are too.
            if (Number(status) >= 400 && !address.startsWith("/v1/runtime/")) {
              // A route of its own says itself what its refusals mean.
              const { content = body.components.responses[`Problem${status}`]?.content } = response
              if (!address.startsWith("/v1/speed-insights/"))
                assert.strictEqual(response.$ref, `#/components/responses/Problem${status}`)
              assert.property(content, "application/problem+json", operation.operationId)
            }
          }
          const changes = operation.parameters.some((one: any) => one.$ref?.endsWith("/If-Match"))
          assert.strictEqual(changes, "412" in operation.responses, operation.operationId)
        }
      }
      assert.hasAllKeys(body.components.securitySchemes, ["gatewayKey", "grant", "key", "session"])
      const docs = yield* call("GET", "/docs", { token: null })
      assert.notMatch(docs.text, /<(script|link)[^>]+(src|href)="https?:/)
    })
  )
})
