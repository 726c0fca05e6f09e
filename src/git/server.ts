import * as Layer from "effect/Layer"
import { commits } from "#src/deployments/server.ts"
import type { Server } from "#src/feature.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { PullRequestLooks } from "#src/previews/PullRequestLooks.ts"
import type { GitConnections as Operations } from "./api.ts"
import { Forge } from "./Forge.ts"
import { GitBranches } from "./GitBranches.ts"
import { GitConnections } from "./GitConnections.ts"
import * as handlers from "./handlers.ts"
import * as intake from "./intake.ts"
import * as look from "./look.ts"

export const forges = Forge.layer.pipe(Layer.provideMerge(GitConnections.layer))

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide(forges)),
  routes: intake.layer.pipe(
    Layer.provide([forges, GitBranches.layer, GitSources.layer, PullRequestLooks.layer])
  ),
  loops: look.layer.pipe(Layer.provide([commits, GitBranches.layer]))
}
