/** The shared suite would find nothing here: a gateway has no outside. What it looks at are the operator's upstreams. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as aiGateway from "#reconcilers/ai-gateway.ts"
import type { AiModel } from "#schemas/ai-gateway.ts"
import { type ModelUpstream, ModelUpstreams } from "#src/ai-gateways/ModelUpstreams.ts"
import { Registry } from "#src/engine/Reconciler.ts"

const up: ModelUpstream = { name: "first", failing: false }
const down: ModelUpstream = { name: "second", failing: true }

const observed = (upstreams: Partial<Record<AiModel, ReadonlyArray<ModelUpstream>>>, deleting = false) =>
  Effect.gen(function* () {
    const registration =
      (yield* Registry).registrations.get("AiGateway") ?? assert.fail("it is not registered")
    return yield* registration.reconciler.observe({
      orgId: "o",
      uid: "u",
      kind: "AiGateway",
      projectId: "p",
      environment: "production",
      name: "ai",
      parentUid: "e",
      spec: {
        allowedModels: ["svc/fast", "svc/reasoning"],
        monthlyBudgetUsd: 1,
        timeoutMs: 60_000,
        maxRetries: 2,
        redactPrompts: true
      },
      generation: 1,
      status: null,
      facts: {},
      deleting,
      fence: 1n
    })
  }).pipe(
    Effect.provide(
      aiGateway.layer.pipe(
        Layer.provide(
          Layer.succeed(ModelUpstreams, { of: (model) => Effect.succeed(upstreams[model] ?? []) })
        ),
        Layer.provideMerge(Registry.layer)
      )
    )
  )

it.effect("a gateway is ready when every model has an upstream that answers", () =>
  Effect.gen(function* () {
    const seen = yield* observed({ "svc/fast": [up], "svc/reasoning": [up] })
    assert.deepStrictEqual(seen, {
      _tag: "Present",
      status: { availableModels: ["svc/fast", "svc/reasoning"] },
      differences: [],
      ready: true
    })
  })
)

it.effect("it says which models have none, and is not ready where none of them has one", () =>
  Effect.gen(function* () {
    const some = yield* observed({ "svc/reasoning": [up] })
    assert.deepInclude(some, { ready: true, status: { availableModels: ["svc/reasoning"] } })
    const note = some._tag === "Present" ? some.note : undefined
    assert.deepInclude(note, { reason: "ModelUnavailable" })
    assert.match(note?.message ?? "", /for svc\/fast:/)
    const none = yield* observed({})
    assert.deepInclude(none, { ready: false, reason: "ModelUnavailable" })
  })
)

it.effect("it says which upstreams fail, by name, and stays ready", () =>
  Effect.gen(function* () {
    const seen = yield* observed({ "svc/fast": [up, down], "svc/reasoning": [down] })
    assert.deepInclude(seen, { ready: true })
    const note = seen._tag === "Present" ? seen.note : undefined
    assert.deepStrictEqual(note, {
      reason: "UpstreamFailing",
      message: "Left alone for a while, since it fails: second"
    })
  })
)

it.effect("a deleted one leaves nothing", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* observed({}, true), { _tag: "Absent" })
  })
)
