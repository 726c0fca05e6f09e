/** What a git source reads of a repository: which commit its ref names, and one file of that commit. */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { GitFetch } from "#src/git/GitFetch.ts"

export interface RepositoryPlace {
  readonly orgId: string
  readonly url: string
  /** Id of the git connection whose credential is used. */
  readonly connection: string | null
}

/** The message is for users. */
export class RepositoryError extends Data.TaggedError("RepositoryError")<{
  readonly code: string
  readonly message: string
}> {}

/** Bytes: what `manifest.apply` takes. */
const longestManifest = 4 * 1024 * 1024
/** Less than a reconcile may take. */
const patience = "90 seconds"

export class ManifestRepository extends Context.Service<
  ManifestRepository,
  {
    readonly resolve: (place: RepositoryPlace, ref: string) => Effect.Effect<string, RepositoryError>
    /** The text of a file. */
    readonly read: (
      place: RepositoryPlace,
      commit: string,
      path: string
    ) => Effect.Effect<string, RepositoryError>
  }
>()("svc/git-sources/ManifestRepository") {
  static readonly layer = Layer.effect(
    ManifestRepository,
    Effect.gen(function* () {
      const git = yield* GitFetch
      const failed = Effect.mapError(
        ({ code, message }: { readonly code: string; readonly message: string }) =>
          new RepositoryError({ code, message })
      )
      return ManifestRepository.of({
        resolve: ({ url }, ref) => failed(git.resolve({ url, ref })),
        read: Effect.fnUntraced(function* ({ url }, commit, path) {
          const found = yield* failed(
            Effect.scoped(
              Effect.flatMap(git.fetch({ url, commit }), ({ file }) => file(path, longestManifest))
            )
          ).pipe(
            Effect.timeoutOrElse({
              duration: patience,
              orElse: () =>
                Effect.fail(
                  new RepositoryError({
                    code: "timed_out",
                    message: `The commit ${commit} could not be fetched in ${patience}`
                  })
                )
            })
          )
          if (Option.isNone(found))
            return yield* new RepositoryError({
              code: "manifest_missing",
              message: `The commit ${commit} has no file ${path}`
            })
          return found.value.toString()
        })
      })
    })
  )
}
