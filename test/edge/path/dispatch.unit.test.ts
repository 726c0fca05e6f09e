/** What the agent says of requests before it knows everything, and how it counts what it judges. */
import { randomUUID } from "node:crypto"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as TestClock from "effect/testing/TestClock"
import { AppConfig } from "#src/config.ts"
import { makeDispatch } from "#src/edge/agent/dispatch.ts"
import { type EdgeAnswer, type EdgeRequest, type Forward, Gate } from "#src/edge/agent/Gate.ts"
import { Routes } from "#src/edge/agent/Routes.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"

const host = "app.apps.localhost"
const request = (url: string): EdgeRequest => ({
  ...{ method: "GET", url, host, client: "192.0.2.1", scheme: "https", headers: {}, upgrade: false }
})
const answers: Record<string, EdgeAnswer | Forward> = {
  "/allowed": { _tag: "Forward" },
  "/redirected": { _tag: "Answer", status: 302 },
  "/refused": { _tag: "Answer", status: 401 }
}
const gate: Gate = {
  judge: ({ url }) => Effect.succeed(answers[url] ?? { _tag: "Answer", status: 500 }),
  own: () => Effect.die("nobody comes back here")
}
const world = Layer.mergeAll(
  Routes.layer,
  Layer.mock(Certificates, {}),
  Layer.mock(EdgeSites, { hostnameOf: (label) => label, urlOf: (hostname) => hostname }),
  Layer.succeed(Gate, gate),
  AppConfig.layerWith({})
)
const asked = (url: string) =>
  Effect.flatMap(makeDispatch, (dispatch) => dispatch(request(url), () => Effect.succeed(undefined)))

const load = Effect.map(Routes, (routes) => {
  const environmentUid = randomUUID()
  routes.replaceHosts("all", [{ hostname: host, environmentUid, redirectTo: null, hstsSeconds: 0 }])
  routes.replaceSites("all", [
    {
      orgId: randomUUID(),
      environmentUid,
      access: "organization",
      asleep: false,
      target: { address: "127.0.0.1", port: 1 }
    }
  ])
  routes.announce()
  routes.becomeLoaded()
})

it.effect("a request waits until the store was read, and is told to come again when that takes long", () =>
  Effect.gen(function* () {
    const late = yield* Effect.forkChild(asked("/refused"))
    yield* TestClock.adjust("10 seconds")
    assert.deepInclude(yield* Fiber.join(late), { _tag: "Answer", status: 503 })
    const early = yield* Effect.forkChild(asked("/refused"))
    yield* TestClock.adjust("5 seconds")
    yield* load
    assert.deepInclude(yield* Fiber.join(early), { _tag: "Answer", status: 401 })
  }).pipe(Effect.provide(world))
)

it.effect("what is judged is counted by what became of it", () =>
  Effect.gen(function* () {
    yield* load
    const count = (outcome: string) =>
      Effect.map(Metric.snapshot, (all) => {
        const found = all.find(
          ({ id, attributes }) => id === "svc_edge_gate_total" && attributes?.["outcome"] === outcome
        )
        return found?.type === "Counter" ? Number(found.state.count) : 0
      })
    for (const outcome of ["allowed", "redirected", "refused"]) {
      const before = yield* count(outcome)
      yield* asked(`/${outcome}`)
      assert.strictEqual(yield* count(outcome), before + 1)
    }
  }).pipe(Effect.provide(world))
)
