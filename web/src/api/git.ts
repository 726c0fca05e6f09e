/** Operations on repositories: connections to forges, git sources, previews of pull requests. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { GitConnections } from "#src/git/api.ts"
import { GitSources } from "#src/git-sources/api.ts"
import { Previews } from "#src/previews/api.ts"
import { clientOf } from "./call.ts"

export const { gitConnections, gitSources, previews } = Effect.runSync(
  clientOf(HttpApi.make("svc").add(GitConnections, GitSources, Previews))
)
