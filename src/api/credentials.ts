/** Passwords of managed servers: made, rotated, and shown once in a connection string. */
import { randomBytes } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { Json } from "#schemas/kind.ts"
import { AppConfig } from "#src/config.ts"
import { Engine } from "#src/engine/Engine.ts"
import type { UpdateChange } from "#src/store/changes.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { RequestScope } from "./definition/scope.ts"
import { fromStore, problem } from "./problem.ts"
import { stored } from "./writing.ts"

/** Secret field of every server's application password. */
export const passwordField = "password"
/** How long an answer that shows a connection string may take. */
const patience = "45 seconds"

/** 192 random bits, in letters that need no escaping in a URL. */
export const newPassword = (): Redacted.Redacted => Redacted.make(randomBytes(24).toString("base64url"))

export const caCertificateUrl = Effect.map(AppConfig, (config) => `${config.publicUrl}/v1/ca.pem`)

/** Waits until the engine has acted on what was just written; undefined when it is not ready in time. */
export const whenReady = Effect.fnUntraced(function* (orgId: string, uid: string) {
  const engine = yield* Engine
  const settled = yield* Effect.mapError(engine.reconcileNow(orgId, uid, patience), fromStore)
  return settled._tag === "Settled" && settled.record.phase === "ready" ? settled.record : undefined
})

/**
 * Replaces the password, and answers only once the old one is dead: the new one is stored as desired state, and the
 * reconcile that makes it so runs within this request.
 */
export const rotate = Effect.fnUntraced(function* <Spec extends { readonly credentialVersion: number }>(
  record: ResourceRecord,
  spec: Spec & { readonly [field: string]: Json }
) {
  const { orgId, caller } = yield* RequestScope
  const resources = yield* Resources
  const password = newPassword()
  const change: UpdateChange = {
    action: "update",
    uid: record.uid,
    spec: { ...spec, credentialVersion: spec.credentialVersion + 1 },
    expectedRevision: record.revision,
    secrets: { [passwordField]: password }
  }
  yield* stored(resources.write(orgId, [change], caller.actor))
  const ready = yield* whenReady(orgId, record.uid)
  if (ready === undefined) {
    return yield* problem(
      503,
      "rotation_pending",
      "The new password is stored and will be set as soon as the server can be reached; rotate again then to see one"
    )
  }
  return { record: ready, password }
})
