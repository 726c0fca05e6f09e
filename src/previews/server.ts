import * as Layer from "effect/Layer"
import * as preview from "#reconcilers/preview.ts"
import { commits } from "#src/deployments/server.ts"
import type { Server } from "#src/feature.ts"
import { forges } from "#src/git/server.ts"
import { reviewing } from "#src/git-sources/server.ts"
import type { Previews } from "./api.ts"
import * as follow from "./follow.ts"
import * as handlers from "./handlers.ts"
import { PullRequestLooks } from "./PullRequestLooks.ts"

export const server: Server<typeof Previews> = {
  handlers: handlers.layer,
  reconcilers: preview.layer.pipe(Layer.provide(commits)),
  loops: follow.layer.pipe(Layer.provide([PullRequestLooks.layer, forges, reviewing]))
}
