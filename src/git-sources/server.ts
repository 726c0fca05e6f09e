import * as Layer from "effect/Layer"
import * as gitSource from "#reconcilers/git-source.ts"
import { Authority } from "#src/access/Authority.ts"
import { layerRegions } from "#src/catalog/regions.ts"
import type { Server } from "#src/feature.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { forges } from "#src/git/server.ts"
import * as manifest from "#src/manifest/services.ts"
import type { GitSources as Operations } from "./api.ts"
import { GitSources } from "./GitSources.ts"
import * as handlers from "./handlers.ts"
import { ManifestRepository } from "./ManifestRepository.ts"
import { Reviews } from "./Reviews.ts"

/** What looks at manifests in repositories take. */
export const reviewing = Layer.mergeAll(
  GitSources.layer,
  Reviews.layer,
  Authority.layer,
  ManifestRepository.layer.pipe(Layer.provide([GitFetch.layer, forges])),
  manifest.layer.pipe(Layer.provide(layerRegions))
)

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([GitSources.layer, Reviews.layer])),
  reconcilers: gitSource.layer.pipe(Layer.provide(reviewing))
}
