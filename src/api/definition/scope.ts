/**
 * The declaration of what stands before every operation that takes a credential: who is calling, may they, and
 * does what the path names exist. `src/api/authorize.ts` does it.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as HttpApiMiddleware from "effect/http-api/HttpApiMiddleware"
import type { Role } from "#schemas/kind.ts"
import type { CredentialKind, Grant } from "#src/access/Access.ts"
import type { Reservation } from "#src/store/Reservation.ts"
import type { Actor, ResourceRecord } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Operation } from "./operation.ts"

export interface Caller {
  readonly credential: CredentialKind
  readonly credentialId: string
  readonly userId: string | null
  /** What the agent was granted, where an agent calls. */
  readonly grant: Grant | undefined
  /** For the history and the audit log. */
  readonly actor: Actor
}

/** What the path names beyond its organization, as the operation's `target` says. */
export type Found =
  | { readonly type: "organization" }
  | {
      readonly type: "project"
      readonly projectId: string
      readonly project: string
      /** Of the query; undefined: it names none. */
      readonly environment: string | undefined
    }
  | {
      readonly type: "environment"
      readonly projectId: string
      readonly project: string
      /** Of the query, `production` when it names none. */
      readonly environment: string
      readonly environmentUid: string
    }
  | { readonly type: "resource"; readonly record: ResourceRecord }

/** Who asks for what, and what the path names, checked against its parents and the caller's organization. */
export interface Scope {
  readonly operation: Operation
  readonly caller: Caller
  readonly orgId: string
  readonly orgSlug: string
  readonly role: Role
  readonly billingActive: boolean
  /** The `If-Match` header field. */
  readonly ifMatch: string | undefined
  /** Asks again whether the credential holds, for answers that go on for long. */
  readonly stillHolds: Effect.Effect<boolean, StoreUnavailable>
  readonly found: Found
  /** Id and secrets of what the request makes: handlers that make something take them from here. */
  readonly reservation: Reservation
}

/** Set by the gate for the handler of the same request. */
export class RequestScope extends Context.Service<RequestScope, Scope>()("svc/api/RequestScope") {}

export class Authorize extends HttpApiMiddleware.Service<Authorize, { provides: RequestScope }>()(
  "svc/api/Authorize"
) {}
