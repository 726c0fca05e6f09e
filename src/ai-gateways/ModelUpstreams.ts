/** What the conditions of gateways tell of the operator's upstreams. Whoever calls upstreams provides it. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface ModelUpstream {
  /** What the operator calls it: shown to users, so neither its address nor its key. */
  readonly name: string
  /** The breaker is open, for everybody or for the organization: it failed often, and is left alone for a while. */
  readonly failing: boolean
}

export class ModelUpstreams extends Context.Service<
  ModelUpstreams,
  {
    /** As an organization meets them, in the order in which they are tried. Empty: the operator has named none for this model. */
    readonly of: (
      model: AiModel,
      orgId: string
    ) => Effect.Effect<ReadonlyArray<ModelUpstream>, StoreUnavailable>
  }
>()("svc/ai-gateways/ModelUpstreams") {
  /** No upstream for any model. */
  static readonly none = Layer.succeed(ModelUpstreams, { of: () => Effect.succeed([]) })
}
