/** What a git source reads of a repository: which commit its ref names, and the manifest of a commit. */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { CommitFiles } from "#src/git/commit-files.ts"
import { Forge } from "#src/git/Forge.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { longestSettings, manifestPathOf, settingsFile } from "./repository-settings.ts"

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

export interface RepositoryManifest {
  readonly path: string
  readonly text: string
}

/** Bytes: what `manifest.apply` takes. */
const longestManifest = 4 * 1024 * 1024
/** Characters of manifests that a process keeps, and what one counts at least. */
const mostKept = 32 * 1024 * 1024
const least = 1024
/** What is wrong with a commit stays wrong with it. */
export const faultsOfCommits: ReadonlySet<string> = new Set([
  "settings_invalid",
  "manifest_missing",
  "manifest_invalid",
  "too_large"
])
/** Less than a reconcile may take. */
const patience = "90 seconds"

export class ManifestRepository extends Context.Service<
  ManifestRepository,
  {
    readonly resolve: (place: RepositoryPlace, ref: string) => Effect.Effect<string, RepositoryError>
    /** Without a path the one that the repository's settings name. What a commit has, or lacks, is not fetched again. */
    readonly read: (
      place: RepositoryPlace,
      commit: string,
      path: string | undefined
    ) => Effect.Effect<RepositoryManifest, RepositoryError>
  }
>()("svc/git-sources/ManifestRepository") {
  static readonly layer = Layer.effect(
    ManifestRepository,
    Effect.gen(function* () {
      const git = yield* GitFetch
      const connections = yield* GitConnections
      const forge = yield* Forge
      const failed = Effect.mapError(
        ({ code, message }: { readonly code: string; readonly message: string }) =>
          new RepositoryError({ code, message })
      )
      /** The repository with the credential of its connection, which goes to the connection's own forge alone. */
      const opened = Effect.fnUntraced(function* ({ orgId, url, connection: id }: RepositoryPlace) {
        if (id === null) return { orgId, url }
        const found = yield* Effect.mapError(
          connections.open(orgId, { id }),
          ({ message }) => new RepositoryError({ code: "unreachable", message })
        )
        if (Option.isNone(found))
          return yield* new RepositoryError({
            code: "connection_missing",
            message: "The git connection whose credential it is to use is not there"
          })
        if (new URL(found.value.url).origin !== new URL(url).origin)
          return yield* new RepositoryError({
            code: "connection_elsewhere",
            message: `The git connection is to ${found.value.url}, and its credential goes nowhere else`
          })
        return { orgId, url, credential: yield* failed(forge.client(found.value).credential) }
      })
      /** By where they were read, the oldest first: a look at what has not changed is to cost no fetch. */
      const known = new Map<string, RepositoryManifest | RepositoryError>()
      let size = 0
      const lengthOf = (read: RepositoryManifest | RepositoryError | undefined) =>
        read === undefined ? 0 : least + ("text" in read ? read.text.length : 0)
      const keep = (key: string, read: RepositoryManifest | RepositoryError) => {
        size += lengthOf(read) - lengthOf(known.get(key))
        known.set(key, read)
        for (const [oldest, one] of known) {
          if (size <= mostKept) break
          known.delete(oldest)
          size -= lengthOf(one)
        }
      }
      const manifestIn = Effect.fnUntraced(function* (
        { file }: CommitFiles,
        commit: string,
        given: string | undefined
      ) {
        const settings =
          given === undefined ? yield* failed(file(settingsFile, longestSettings)) : Option.none()
        const path = Option.fromUndefinedOr(given).pipe(
          Option.orElse(() => manifestPathOf(Option.getOrUndefined(settings)?.toString()))
        )
        if (Option.isNone(path))
          return yield* new RepositoryError({
            code: "settings_invalid",
            message: `${settingsFile} of the commit ${commit} does not name a manifest of the repository`
          })
        const found = yield* failed(file(path.value, longestManifest))
        if (Option.isNone(found))
          return yield* new RepositoryError({
            code: "manifest_missing",
            message: `The commit ${commit} has no file ${path.value}`
          })
        return { path: path.value, text: found.value.toString() }
      })
      return ManifestRepository.of({
        resolve: Effect.fnUntraced(function* (place, ref) {
          return yield* failed(git.resolve({ ...(yield* opened(place)), ref }))
        }),
        read: Effect.fnUntraced(function* (place, commit, path) {
          const { orgId, url, connection } = place
          const key = JSON.stringify([orgId, url, connection, commit, path ?? null])
          const before = known.get(key)
          if (before !== undefined)
            return yield* before instanceof RepositoryError ? before : Effect.succeed(before)
          const repository = yield* opened(place)
          const fetched = Effect.flatMap(failed(git.files({ ...repository, commit })), (found) =>
            manifestIn(found, commit, path)
          )
          const read = yield* Effect.scoped(fetched).pipe(
            Effect.timeoutOrElse({
              duration: patience,
              orElse: () =>
                Effect.fail(
                  new RepositoryError({
                    code: "timed_out",
                    message: `The commit ${commit} could not be fetched in ${patience}`
                  })
                )
            }),
            Effect.tapError((error) =>
              Effect.sync(() => void (faultsOfCommits.has(error.code) && keep(key, error)))
            )
          )
          keep(key, read)
          return read
        })
      })
    })
  )
}
