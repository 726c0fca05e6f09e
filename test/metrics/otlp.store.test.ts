import * as http from "node:http"
import type { AddressInfo } from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as Layer from "effect/Layer"
import { MetricSamples } from "#src/metrics/MetricSamples.ts"
import { send } from "#src/metrics/otlp.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject } from "#test/setup/fixtures.ts"

/** Takes what it is sent, and answers with `status`. */
const collector = Effect.acquireRelease(
  Effect.promise(async () => {
    const seen = { status: 200, requests: [] as { readonly path: string; readonly body: string }[] }
    const server = http.createServer((request, response) => {
      const chunks: Array<Buffer> = []
      request.on("data", (chunk: Buffer) => chunks.push(chunk))
      request.on("end", () => {
        seen.requests.push({ path: request.url ?? "", body: Buffer.concat(chunks).toString("utf8") })
        response.writeHead(seen.status, { "content-type": "application/json" }).end("{}")
      })
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    return { seen, server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` }
  }),
  ({ server }) =>
    Effect.promise(() => {
      server.closeAllConnections()
      return new Promise<void>((resolve) => server.close(() => resolve()))
    })
)

layer(
  Layer.mergeAll(MetricSamples.layer, Resources.layer, FetchHttpClient.layer).pipe(
    Layer.provide(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  { excludeTestServices: true }
)("metrics for a collector", (it) => {
  it.effect("are what all resources have now, in as many requests as it takes", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const resources = yield* Resources
      const { seen, url } = yield* collector
      yield* send(url)
      assert.lengthOf(seen.requests, 0)
      const { id: orgId, slug } = yield* makeOrganization()
      const project = yield* makeProject(orgId, "shop")
      const changes = Array.from({ length: 501 }, (_, index) => cacheChange(project, `cache-${index}`))
      yield* resources.write(orgId, changes, actor)
      const at = new Date()
      const [first, ...rest] = changes.map(({ uid }) => uid)
      yield* record([
        ...rest.map((uid) => ({ orgId, uid, source: "host", at, values: { "cpu.percent": 12.5 } }) as const),
        // Too old to be so now.
        {
          orgId,
          uid: first ?? "",
          source: "host",
          at: new Date(Date.now() - 120_000),
          values: { "cpu.percent": 1 }
        },
        { orgId, uid: first ?? "", source: "store", at, values: { "memory.used_bytes": 1_024 } }
      ])
      yield* send(url)
      assert.deepStrictEqual(
        seen.requests.map(({ path }) => path),
        ["/v1/metrics", "/v1/metrics"]
      )
      const metrics = seen.requests.flatMap(
        ({ body }) => JSON.parse(body).resourceMetrics[0].scopeMetrics[0].metrics
      )
      const points = (name: string) =>
        metrics.flatMap((metric) => (metric.name === name ? metric.gauge.dataPoints : []))
      assert.lengthOf(points("svc.cpu.percent"), 500)
      const [memory] = points("svc.memory.used_bytes")
      assert.strictEqual(memory.asDouble, 1_024)
      assert.strictEqual(memory.timeUnixNano, `${at.getTime()}000000`)
      assert.deepStrictEqual(
        Object.fromEntries(
          memory.attributes.map(({ key, value }: { key: string; value: { stringValue: string } }) => [
            key,
            value.stringValue
          ])
        ),
        {
          organization: slug,
          project: "shop",
          environment: "production",
          kind: "Cache",
          name: "cache-0",
          uid: first
        }
      )
      assert.strictEqual(metrics.find(({ name }) => name === "svc.memory.used_bytes").unit, "By")
      // A collector that takes nothing ends the round, and nothing else.
      seen.status = 503
      assert.isTrue(Exit.isFailure(yield* Effect.exit(send(url))))
      assert.lengthOf(seen.requests, 3)
    })
  )
})
