/**
 * What is asked of forges (GitHub, GitLab, Gitea, Forgejo) beside git itself, in one form for all of them. Requests go out
 * as every one to an address that users name: judged, without redirects, bounded.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Outbound } from "#src/outbound/Outbound.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { gitUsername } from "./connection-kinds.ts"
import type { ForgeClient } from "./ForgeClient.ts"
import { makeForgeRequests, makeInstallationTokens } from "./forge-requests.ts"
import { githubLike } from "./forges/github.ts"
import { gitlab } from "./forges/gitlab.ts"
import { GitConnections, type OpenConnection } from "./GitConnections.ts"

export class Forge extends Context.Service<
  Forge,
  {
    /** Opens no connection yet: requests are made by the client's functions. */
    readonly client: (connection: OpenConnection) => ForgeClient
    /** The connection that opens repositories of the owner of `repo`; none: there is none. */
    readonly forRepo: (
      orgId: string,
      repo: string
    ) => Effect.Effect<
      Option.Option<{ readonly connection: OpenConnection; readonly client: ForgeClient }>,
      StoreUnavailable
    >
  }
>()("svc/git/Forge") {
  static readonly layer = Layer.effect(
    Forge,
    Effect.gen(function* () {
      const outbound = yield* Outbound
      const connections = yield* GitConnections
      const tokens = makeInstallationTokens()

      const client = (connection: OpenConnection): ForgeClient => {
        const ask = makeForgeRequests(outbound, connection, tokens)
        const username = gitUsername(connection.kind)
        const credential = Effect.map(ask.token, (token) => ({ username, token }))
        const forge = connection.kind === "gitlab" ? gitlab(ask) : githubLike(ask, connection.kind)
        return { ...forge, credential }
      }

      return Forge.of({
        client,
        forRepo: Effect.fn("Forge.forRepo")(function* (orgId, repo) {
          const found = yield* connections.open(orgId, { owner: ownerOf(repo) })
          return Option.map(found, (connection) => ({ connection, client: client(connection) }))
        })
      })
    })
  )
}

const ownerOf = (repo: string) => (repo.split("/", 1)[0] ?? "").toLowerCase()

/** Where git finds a repository of the forge. */
export const cloneUrl = (forgeUrl: string, repo: string): string => `${forgeUrl}/${repo}.git`
