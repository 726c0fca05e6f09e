/** The routes of the pages on which people let agents in and take that back. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { agentPaths } from "#src/api/page-paths.ts"
import { pageRoutes } from "#src/identity/pages/handling.ts"
import { accountPages } from "./account.ts"
import { authorizePages } from "./authorize.ts"

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    return pageRoutes(agentPaths, { ...(yield* authorizePages), ...(yield* accountPages) })
  })
)
