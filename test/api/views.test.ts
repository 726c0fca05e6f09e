import { assert, it } from "@effect/vitest"
import type { ConditionType, Phase } from "#schemas/condition.ts"
import { serviceStatus } from "#src/api/views.ts"

const record = (phase: Phase, ready: "true" | "false" | "unknown" | undefined) => ({
  phase,
  conditions:
    ready === undefined
      ? []
      : (["Ready", "Synced"] as const).map((type: ConditionType) => ({
          type,
          status: type === "Ready" ? ready : ("false" as const),
          reason: "Progressing",
          message: "",
          lastTransitionAt: "2026-01-01T00:00:00.000Z",
          observedGeneration: 1
        }))
})

it("a service is called ready only while its condition Ready is not false", () => {
  const told = (phase: Phase) =>
    ([undefined, "true", "unknown", "false"] as const).map((ready) => serviceStatus(record(phase, ready)))
  assert.deepStrictEqual(told("ready"), ["ready", "ready", "ready", "provisioning"])
  assert.deepStrictEqual(told("updating"), ["ready", "ready", "ready", "provisioning"])
  assert.deepStrictEqual(new Set(told("provisioning")), new Set(["provisioning"]))
  assert.deepStrictEqual(new Set(told("waiting")), new Set(["provisioning"]))
  assert.deepStrictEqual(new Set(told("failed")), new Set(["failed"]))
})
