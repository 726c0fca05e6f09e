/** `svc speed` and `svc telemetry`, against a real control plane. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { batchOf, event, origin, send } from "./world.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "2 minutes" })("svc", (it) => {
  it.effect("speed switches measuring on, says what to put into pages, and draws a report", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const { call, url } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
      assert.match((yield* svc(["speed", "get", "shop"])).stdout, /Measuring +off/)
      const wrong = yield* svc(["speed", "enable", "shop", "--origin", "http://shop.example.com"])
      assert.notStrictEqual(wrong.code, 0)
      const enabled = yield* svc(["speed", "enable", "shop", "--origin", origin])
      assert.strictEqual(enabled.code, 0, enabled.stderr)
      assert.match(enabled.stdout, /Measuring +on/)
      const [, ref = ""] = /data-project="([^"]+)"/.exec(enabled.stdout) ?? []
      assert.include(enabled.stdout, `<script defer src="${url}/v1/speed-insights/client.js"`)
      const collect = `/v1/speed-insights/collect/${ref}`
      const events = Array.from({ length: 10 }, () => event({ value: 2_000, route: "/cart" }))
      assert.strictEqual((yield* send({ collect }, batchOf(events))).status, 202)

      const report = yield* svc(["speed", "report", "shop"])
      assert.match(report.stdout, /Samples +10\n/)
      assert.match(report.stdout, /LCP +good +2\.\d\d s/)
      assert.match(report.stdout, /\/cart +9\d +2\.\d\d s/)
      assert.match(report.stdout, /Samples over time +·+█/)
      const json = yield* svc(["speed", "report", "shop", "--route", "/", "--granularity", "day", "--json"])
      assert.strictEqual(JSON.parse(json.stdout).summary.samples, 0)
      assert.match((yield* svc(["speed", "disable", "shop"])).stdout, /Measuring +off/)
    })
  )

  it.effect("telemetry sends nothing that the platform does not take, and says so", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const refused = yield* svc(["telemetry", "on"])
      assert.notStrictEqual(refused.code, 0)
      assert.include(refused.stderr, "takes no telemetry")
      assert.strictEqual((yield* svc(["telemetry", "status"])).stdout, "off\n")
      const funnel = yield* svc(["telemetry", "funnel"])
      assert.match(funnel.stdout, /agent_connected +agent_grant +0/)
    })
  )
})

layer(signedIn({}, { SVC_TELEMETRY_KEY: Buffer.alloc(32, 1).toString("base64") }), {
  excludeTestServices: true,
  timeout: "2 minutes"
})("svc telemetry", (it) => {
  it.effect("tells once, when it is turned on, and what", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const { sql } = yield* Plane
      const count = Effect.map(sql("select count(*)::int as n from telemetry_event"), ([row]) => row?.["n"])
      yield* svc(["status"])
      assert.strictEqual(yield* count, 0)
      for (const _ of [1, 2]) {
        const on = yield* svc(["telemetry", "on"])
        assert.strictEqual(on.code, 0, on.stderr)
        assert.include(on.stderr, "No name, no address, no credential")
      }
      assert.strictEqual((yield* svc(["telemetry", "status"])).stdout, "on\n")
      assert.strictEqual(yield* count, 1)
      yield* svc(["telemetry", "off"])
      assert.strictEqual((yield* svc(["telemetry", "status"])).stdout, "off\n")
    })
  )
})
