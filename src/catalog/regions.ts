/** The catalogue's regions: which of them new resources may be placed in, and whether this process serves one of them. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Regions } from "#src/api/Regions.ts"
import { ServedRegion } from "#src/engine/options.ts"
import { Catalog } from "./Catalog.ts"
import { idsOf } from "./content.ts"

/** `SVC_REGION` names a region that there is not. */
class UnknownServedRegion extends Schema.TaggedError<UnknownServedRegion>()("UnknownServedRegion", {
  message: Schema.String
}) {}

export const layerRegions = Layer.effect(Regions, Effect.map(Catalog, idsOf)).pipe(
  Layer.provide(Catalog.layer)
)

/** Nothing would ever be asked of an engine that serves a region which nobody can name. */
export const checkServedRegion = Layer.effectDiscard(
  Effect.gen(function* () {
    const region = yield* ServedRegion
    const ids = idsOf(yield* Catalog)
    if (!ids.includes(region))
      return yield* new UnknownServedRegion({
        message: `This process is to serve the region "${region}" (SVC_REGION), and the catalogue has only: ${ids.join(", ")}`
      })
  })
).pipe(Layer.provide(Catalog.layer))
