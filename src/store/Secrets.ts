/**
 * Sealed values of resources. A specification or a status holds a reference at most; the value is here,
 * encrypted with AES-256-GCM under a key of the ring, bound to its organization, resource and field.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import type { StoreUnavailable } from "./errors.ts"

export interface SecretRef {
  readonly orgId: string
  readonly uid: string
  /** Which of the resource's secrets: `password`, `variable/KEY`, ... */
  readonly field: string
}

export class Secrets extends Context.Service<
  Secrets,
  {
    readonly read: (ref: SecretRef) => Effect.Effect<Option.Option<Redacted.Redacted>, StoreUnavailable>
    readonly write: (ref: SecretRef, value: Redacted.Redacted) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/store/Secrets") {}

/** Sealed values of the platform itself, which belong to no organization. */
export class PlatformSecrets extends Context.Service<
  PlatformSecrets,
  {
    /**
     * Reads the value, making it first when there is none. When several processes make it at once, one of the
     * values is stored and all of them get that one.
     */
    readonly ensure: <E, R>(
      name: string,
      make: Effect.Effect<Redacted.Redacted, E, R>
    ) => Effect.Effect<Redacted.Redacted, E | StoreUnavailable, R>
  }
>()("svc/store/PlatformSecrets") {}
