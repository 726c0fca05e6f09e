import * as Layer from "effect/Layer"
import { Manifests } from "./Manifests.ts"
import { Plans } from "./Plans.ts"

/** Plans and what carries them out, for this feature's operations and for other features. */
export const layer = Manifests.layer.pipe(Layer.provide(Plans.layer))
