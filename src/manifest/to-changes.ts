/** From the steps of a plan to the changes that the store takes. */
import { randomBytes } from "node:crypto"
import * as Redacted from "effect/Redacted"
import { findKind } from "#schemas/index.ts"
import type { Change, SecretValues } from "#src/store/change.ts"
import type { Step } from "./change.ts"

export const toChanges = (steps: ReadonlyArray<Step>): ReadonlyArray<Change> => steps.map(toChange)

const toChange = (step: Step): Change => {
  const secrets: SecretValues = Object.fromEntries(
    Object.entries(step.secrets).map(([field, value]) => [field, Redacted.make(value)])
  )
  const expected = step.generation === null ? {} : { expectedGeneration: step.generation }
  switch (step.action) {
    case "delete":
      return { action: "delete", uid: step.uid, ...expected }
    case "update":
      return {
        action: "update",
        uid: step.uid,
        spec: step.spec ?? {},
        managedBy: "manifest",
        secrets,
        ...expected
      }
    case "create": {
      const generated = (findKind(step.kind)?.generated ?? []).map(
        (field) => [field, randomSecret()] as const
      )
      return {
        action: "create",
        uid: step.uid,
        kind: step.kind,
        projectId: step.projectId,
        environment: step.environment,
        name: step.name,
        parentUid: step.parentUid,
        spec: step.spec ?? {},
        managedBy: "manifest",
        secrets: { ...Object.fromEntries(generated), ...secrets }
      }
    }
  }
}

/** 192 random bits, in letters that need no escaping in a URL. */
const randomSecret = () => Redacted.make(randomBytes(24).toString("base64url"))
