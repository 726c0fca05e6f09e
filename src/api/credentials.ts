/** Passwords of managed servers: made, rotated, and shown once in a connection string. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Json } from "#schemas/kind.ts"
import { AppConfig } from "#src/config.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { RequestScope } from "./definition/scope.ts"
import { fromStore, problem } from "./problem.ts"
import { ReconcileNow } from "./ReconcileNow.ts"
import { amend } from "./writing.ts"

/** Secret field of every server's application password. */
export const passwordField = "password"
/** How long an answer that shows a connection string may take. */
const patience = "45 seconds"

/** The password that a request makes: 192 random bits, in letters that need no escaping in a URL. */
export const passwordOf = (reservation: Reservation): Redacted.Redacted =>
  Redacted.make(randomBytesOf(reservation, "password", 24).toString("base64url"))

export const caCertificateUrl = Effect.map(AppConfig, (config) => `${config.publicUrl}/v1/ca.pem`)

/** Specifications of servers with a password count how often it was set. */
interface Versioned {
  readonly credentialVersion: number
}

/** Waits until the engine has acted on what was just written, and answers the record as it is then. */
const settled = Effect.fnUntraced(function* (orgId: string, uid: string) {
  const engine = yield* ReconcileNow
  const resources = yield* Resources
  const outcome = yield* Effect.mapError(engine.reconcileNow(orgId, uid, patience), fromStore)
  if (outcome._tag === "Settled") return { ready: outcome.record.phase === "ready", record: outcome.record }
  const record = Option.getOrUndefined(yield* Effect.mapError(resources.get(orgId, uid), fromStore))
  return { ready: false, record }
})

/**
 * What became of a server that was just asked for. `shown` is the record that a connection string can be made of:
 * the server takes the password of the first version. Absent, it is not ready in time, or another password is in force.
 */
export const afterCreation = Effect.fnUntraced(function* <Spec extends Versioned>(
  uid: string,
  decode: (spec: Json) => Effect.Effect<Spec>
) {
  const { orgId } = yield* RequestScope
  const { ready, record } = yield* settled(orgId, uid)
  const first = record !== undefined && (yield* decode(record.spec)).credentialVersion === 1
  return { record, shown: ready && first ? record : undefined }
})

/**
 * Replaces the password, and answers only once the old one is dead: the new one is stored as desired state, and the
 * reconcile that makes it so runs within this request.
 */
export const rotate = Effect.fnUntraced(function* <
  Spec extends Versioned & { readonly [field: string]: Json }
>(found: ResourceRecord, decode: (spec: Json) => Effect.Effect<Spec>) {
  const { orgId, reservation } = yield* RequestScope
  const password = passwordOf(reservation)
  const written = yield* amend(found, (record) =>
    Effect.map(decode(record.spec), (spec) => ({
      spec: { ...spec, credentialVersion: spec.credentialVersion + 1 },
      secrets: { [passwordField]: password }
    }))
  )
  const { credentialVersion } = yield* decode(written.spec)
  const { ready, record } = yield* settled(orgId, found.uid)
  if (!ready || record === undefined) {
    return yield* problem(
      503,
      "rotation_pending",
      "The new password is stored and will be set as soon as the server can be reached; rotate again then to see one",
      { headers: { "retry-after": "10" } }
    )
  }
  if ((yield* decode(record.spec)).credentialVersion !== credentialVersion) {
    return yield* problem(
      409,
      "rotated_again",
      "Another rotation came right after this one; the password of that one holds"
    )
  }
  return { record, password }
})
