/**
 * Commits as what deployments are made of: which commit a branch or a tag of a project's repository is, and bringing its files
 * to where builds take them from.
 */
import { createReadStream } from "node:fs"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { CommitSource } from "#schemas/deployment.ts"
import type { BuildRequest } from "#src/builds/Builder.ts"
import { BuildFailed } from "#src/builds/build-error.ts"
import { Uploads } from "#src/builds/Uploads.ts"
import { cloneUrl, Forge } from "#src/git/Forge.ts"
import type { ForgeError } from "#src/git/ForgeClient.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import { GitError, mayPass } from "#src/git/GitError.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

const unavailable = (message: string) => new BuildFailed({ errorCode: "source_unavailable", message })
/** A server that does not answer is asked again a few times before the deployment fails. */
const again = {
  times: 3,
  schedule: Schedule.exponential("2 seconds").pipe(Schedule.jittered)
}

export class CommitSources extends Context.Service<
  CommitSources,
  {
    /** The commit that a ref is now. Without a ref: of the branch that counts there. */
    readonly resolve: (
      orgId: string,
      of: {
        /** `owner/name` behind the owner's connection, or the whole URL of a repository that everybody may read. */
        readonly repo: string
        readonly ref: string | undefined
        /** Id of the connection that it has to be, which has to be the owner's still. */
        readonly connection?: string | undefined
      }
    ) => Effect.Effect<CommitSource, GitError | ForgeError | StoreUnavailable>
    /** Its files, kept for the build, and the plan made of them. */
    readonly bring: (
      orgId: string,
      source: CommitSource
    ) => Effect.Effect<Pick<BuildRequest, "digest" | "plan">, BuildFailed>
  }
>()("svc/deployments/CommitSources") {
  static readonly layer = Layer.effect(
    CommitSources,
    Effect.gen(function* () {
      const git = yield* GitFetch
      const forge = yield* Forge
      const connections = yield* GitConnections
      const uploads = yield* Uploads

      const resolve = Effect.fn("CommitSources.resolve")(function* (
        orgId: string,
        {
          repo,
          ref,
          connection: wanted
        }: {
          readonly repo: string
          readonly ref: string | undefined
          readonly connection?: string | undefined
        }
      ) {
        const isPublic = /^https:\/\//.test(repo)
        const found = isPublic ? undefined : Option.getOrUndefined(yield* forge.forRepo(orgId, repo))
        // A name alone is nobody's: at any other forge somebody else may have it.
        if (!isPublic && (found === undefined || (wanted ?? found.connection.id) !== found.connection.id))
          return yield* new GitError({
            code: "unauthorized",
            message: `No git connection opens ${repo}: connect its owner, or name a public repository by its whole URL`
          })
        const url = found === undefined ? repo : cloneUrl(found.connection.url, repo)
        const credential = found === undefined ? undefined : yield* found.client.credential
        const at =
          ref === undefined
            ? yield* git.head({ orgId, url, credential })
            : { branch: ref, commit: yield* git.resolve({ orgId, url, ref, credential }) }
        const source: CommitSource = {
          kind: "git",
          url,
          ref: at.branch,
          commit: at.commit,
          ...(found === undefined ? {} : { connection: found.connection.id })
        }
        return source
      })

      /** By the connection that it was resolved by: another one might be somebody else's server. */
      const openedBy = Effect.fnUntraced(function* (orgId: string, { connection: id, fork }: CommitSource) {
        if (id === undefined) return {}
        const found = yield* connections.open(orgId, { id })
        if (Option.isNone(found))
          return yield* new GitError({
            code: "unauthorized",
            message: "The connection that the commit was found by is there no more"
          })
        const { url, owner } = found.value
        return {
          credential: yield* forge.client(found.value).credential,
          credentialBelow: fork === true ? undefined : `${url}/${owner}`
        }
      })

      const fetched = Effect.fnUntraced(function* (orgId: string, source: CommitSource) {
        const opened = yield* openedBy(orgId, source)
        return yield* git.fetch({ orgId, url: source.url, commit: source.commit, ...opened })
      })

      return CommitSources.of({
        resolve,
        bring: Effect.fn("CommitSources.bring")((orgId, source) =>
          Effect.scoped(
            Effect.gen(function* () {
              const { archive } = yield* fetched(orgId, source).pipe(
                Effect.retry({
                  ...again,
                  while: (error) =>
                    error._tag === "GitError"
                      ? mayPass(error)
                      : error._tag === "StoreUnavailable" ||
                        error.code === "limited" ||
                        error.code === "unreachable"
                }),
                Effect.mapError(({ message }) => unavailable(message))
              )
              const kept = yield* Effect.mapError(
                uploads.keep(orgId, createReadStream(archive)),
                ({ _tag, message }) =>
                  _tag === "UploadFailed"
                    ? unavailable(message)
                    : new BuildFailed({ errorCode: "build_failed", message })
              )
              return { digest: kept.digest, plan: kept.plan }
            })
          )
        )
      })
    })
  )
}
