import * as Layer from "effect/Layer"
import * as deployment from "#reconcilers/deployment/deployment.ts"
import { AppLogs } from "#src/apps/AppLogs.ts"
import { Apps } from "#src/apps/Apps.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import * as environments from "#src/apps/services.ts"
import { BuildContainers } from "#src/builds/BuildContainers.ts"
import { Builder } from "#src/builds/Builder.ts"
import { DockerfileBuilds } from "#src/builds/dockerfile/DockerfileBuilds.ts"
import { PackageCaches } from "#src/builds/PackageCaches.ts"
import { Uploads } from "#src/builds/Uploads.ts"
import { Images } from "#src/executions/Images.ts"
import type { Server } from "#src/feature.ts"
import { Forge } from "#src/git/Forge.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import type { Deployments as Operations } from "./api.ts"
import { CommitSources } from "./CommitSources.ts"
import { DeploymentBuilds } from "./DeploymentBuilds.ts"
import { DeploymentPulls } from "./DeploymentPulls.ts"
import { Deployments } from "./Deployments.ts"
import * as handlers from "./handlers.ts"
import * as tidy from "./tidy.ts"

const images = Images.layer.pipe(Layer.provideMerge(ContainerEngine.layer))
const building = Builder.layer.pipe(
  Layer.provideMerge(
    Layer.mergeAll(
      DockerfileBuilds.layer.pipe(
        Layer.provideMerge(BuildContainers.layer),
        Layer.provideMerge(Layer.mergeAll(images, Installation.layer))
      ),
      Uploads.layer,
      PackageCaches.layer
    )
  )
)
const making = Layer.mergeAll(DeploymentPulls.layer, DeploymentBuilds.layer).pipe(
  Layer.provideMerge(Layer.mergeAll(Deployments.layer, building))
)

const variables = AppVariables.layer.pipe(Layer.provide(environments.layer))

export const commits = CommitSources.layer.pipe(
  Layer.provide([
    GitFetch.layer,
    Forge.layer.pipe(Layer.provide(GitConnections.layer)),
    GitConnections.layer,
    Uploads.layer
  ])
)

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([Deployments.layer, Uploads.layer, commits])),
  reconcilers: deployment.layer.pipe(Layer.provide([making, commits, Apps.layer, AppLogs.layer, variables])),
  loops: tidy.layer.pipe(Layer.provide(making))
}
