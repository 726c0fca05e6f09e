/** Images of deployments: those that can be chosen stay, the others go. So does what builds leave. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { PackageCaches } from "#src/builds/PackageCaches.ts"
import { Uploads } from "#src/builds/Uploads.ts"
import { Images } from "#src/executions/Images.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { periodic } from "#src/loops/periodic.ts"
import { DeploymentBuilds } from "./DeploymentBuilds.ts"
import { DeploymentPulls } from "./DeploymentPulls.ts"
import { Deployments } from "./Deployments.ts"
import { retireDeployments } from "./retire.ts"

/** Answers how many went. */
export const tidyImages = Effect.gen(function* () {
  const deployments = yield* Deployments
  const images = yield* Images
  const engine = yield* ContainerEngine
  if ((yield* engine.state)._tag !== "Ready") return 0
  // Others let go of images that nobody asked for lately: these are asked for.
  yield* Effect.forEach(yield* deployments.keptImages, images.use, { discard: true })
  let count = 0
  for (const id of yield* deployments.looseImages) {
    // Nobody may choose it from here on; a container that is made of it keeps it until the next round.
    if ((yield* deployments.imageReleased(id)) && (yield* images.release(id))) count++
  }
  return count
})

/** Answers how many files went. */
export const tidyUploads = Effect.gen(function* () {
  const { wantingUploads } = yield* Deployments
  const { sources } = yield* DeploymentBuilds
  return yield* (yield* Uploads).sweep((refs) =>
    // What was fetched for a build is named by no deployment.
    Effect.map(wantingUploads(refs), (wanted) => new Set([...wanted, ...sources()]))
  )
})

export const layer = Layer.mergeAll(
  Layer.effectDiscard(
    periodic({ does: "ask for the deletion of old deployments", every: "10 minutes" }, retireDeployments)
  ),
  Layer.effectDiscard(
    periodic({ does: "let go of images of old deployments", every: "10 minutes" }, tidyImages)
  ),
  Layer.effectDiscard(
    periodic(
      { does: "stop fetching images that no deployment waits for", every: "1 minute" },
      Effect.flatMap(DeploymentPulls, ({ sweep }) => sweep)
    )
  ),
  Layer.effectDiscard(
    periodic(
      { does: "end builds that no deployment waits for", every: "1 minute" },
      Effect.flatMap(DeploymentBuilds, ({ sweep }) => sweep)
    )
  ),
  Layer.effectDiscard(
    periodic(
      { does: "remove what builds have fetched long ago", every: "1 hour" },
      Effect.flatMap(PackageCaches, ({ prune }) => prune)
    )
  ),
  Layer.effectDiscard(
    periodic({ does: "remove uploads that no deployment waits for", every: "1 minute" }, tidyUploads)
  )
)
