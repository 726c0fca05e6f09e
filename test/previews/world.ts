/** Looks at pull requests on a store, with a forge in memory. What they make is reconciled when a test says so. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as gitSource from "#reconcilers/git-source.ts"
import * as preview from "#reconcilers/preview.ts"
import { Preview, type PreviewSpec } from "#schemas/preview.ts"
import { Authority } from "#src/access/Authority.ts"
import { layerRegions } from "#src/catalog/regions.ts"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { Forge } from "#src/git/Forge.ts"
import { type CommitStatus, type ForgeClient, ForgeError, type PullRequest } from "#src/git/ForgeClient.ts"
import type { OpenConnection } from "#src/git/GitConnections.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { ManifestRepository, RepositoryError } from "#src/git-sources/ManifestRepository.ts"
import { Reviews } from "#src/git-sources/Reviews.ts"
import * as manifest from "#src/manifest/services.ts"
import { makeFollow } from "#src/previews/follow.ts"
import { PullRequestLooks } from "#src/previews/PullRequestLooks.ts"
import { Db } from "#src/store/Db.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

/** By the address of the forge and the repository; forges by the owner that a connection opens there. */
const forges = new Map<string, string>()
const repositories = new Map<string, Map<number, PullRequest>>()
const asked: Array<string> = []
/** What pull requests show: the comment's text by the repository's address and the number, and statuses by their commit. */
const comments = new Map<string, string>()
const statuses: Array<CommitStatus & { readonly commit: string }> = []
/** Manifests by their commit, and the commit of each repository's ref. */
const manifests = new Map<string, string>()
const refs = new Map<string, string>()

/** Pull requests that take no comments. */
const locked = new Set<string>()

const client = (url: string): ForgeClient => {
  const of = (repo: string) => repositories.get(`${url}/${repo}`) ?? new Map<number, PullRequest>()
  return {
    account: Effect.succeed("deployer"),
    repository: () => Effect.never,
    pullRequests: (repo) => Effect.sync(() => [...of(repo).values()].filter(({ state }) => state === "open")),
    pullRequest: (repo, number) => {
      asked.push(`${url}/${repo}#${number}`)
      return Effect.fromNullishOr(of(repo).get(number)).pipe(
        Effect.mapError(() => new ForgeError({ code: "missing", message: "There is none" }))
      )
    },
    setStatus: (_, commit, status) => Effect.sync(() => void statuses.push({ ...status, commit })),
    comment: (repo, number, { body }) =>
      Effect.suspend(() => {
        if (locked.has(`${url}/${repo}#${number}`))
          return Effect.fail(new ForgeError({ code: "rejected", message: "It is locked" }))
        comments.set(`${url}/${repo}#${number}`, body)
        return Effect.void
      }),
    credential: Effect.never
  }
}

const connectionIds = new Map<string, string>()
const connectionOf = (url: string, owner: string): OpenConnection =>
  ({ id: connectionIds.get(owner) ?? owner, url, owner }) as unknown as OpenConnection

const sources = Layer.succeed(CommitSources, {
  resolve: (_, { repo, ref = "main" }) =>
    Effect.sync(() => {
      const url = forges.get(repo.split("/", 1)[0] ?? "")
      return { kind: "git" as const, url: `${url}/${repo}.git`, ref, commit: ref }
    }),
  bring: () => Effect.never
})

const missing = (message: string) => new RepositoryError({ code: "ref_not_found", message })
const manifestsInMemory = Layer.succeed(ManifestRepository, {
  resolve: ({ url }, ref) =>
    Effect.mapError(Effect.fromNullishOr(refs.get(`${url} ${ref}`)), () => missing(`There is no ${ref}`)),
  read: (_, commit, path = "svc.manifest.yaml") =>
    Effect.fromNullishOr(manifests.get(commit)).pipe(
      Effect.map((text) => ({ path, text })),
      Effect.mapError(() => missing(`There is no ${commit}`))
    )
})
/** What looks at manifests take, of repositories in memory. */
const reviewing = Layer.mergeAll(
  GitSources.layer,
  Reviews.layer,
  Authority.layer,
  manifestsInMemory,
  manifest.layer.pipe(
    Layer.provide([
      layerRegions,
      Resources.layer,
      Fingerprint.layer.pipe(Layer.provide(memorySecrets().layer))
    ])
  )
)

export const followServices = Layer.mergeAll(
  Layer.mergeAll(
    preview.layer.pipe(Layer.provide([sources, Resources.layer])),
    gitSource.layer.pipe(Layer.provide(reviewing))
  ).pipe(Layer.provideMerge(Registry.layer)),
  reviewing,
  Resources.layer,
  PullRequestLooks.layer,
  Layer.succeed(Forge, {
    client: ({ url }) => client(url),
    forRepo: (_, repo) =>
      Effect.sync(() => {
        const owner = repo.split("/", 1)[0] ?? ""
        return Option.map(Option.fromNullishOr(forges.get(owner)), (url) => ({
          connection: connectionOf(url, owner),
          client: client(url)
        }))
      })
  })
).pipe(
  Layer.provideMerge(AppConfig.layerWith({}, {})),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

/** A project whose repository is `repo`, in an organization of its own. */
export const followWorld = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const looks = yield* PullRequestLooks
  const follow = yield* makeFollow
  const { id: orgId, slug } = yield* makeOrganization()
  const { projectId } = yield* makeProject(orgId, "shop")
  const owner = `acme-${projectId.slice(-12)}`
  const repo = `${owner}/shop`

  const setRepo = Effect.fnUntraced(function* (of: string | undefined) {
    const project = Option.getOrThrow(yield* resources.get(orgId, projectId))
    const spec = { name: "shop", runtimeClass: "scale-to-zero", ...(of && { git: { repo: of } }) }
    const expectedGeneration = project.generation
    yield* resources.write(orgId, [{ action: "update", uid: projectId, spec, expectedGeneration }], actor)
  })
  const previews = Effect.map(resources.listKind(orgId, Preview.name, projectId), (records) =>
    records
      .filter(({ deletionRequestedAt }) => deletionRequestedAt === null)
      .map(({ uid, spec }) => ({ uid, ...(spec as PreviewSpec) }))
  )
  /** Reconciles a preview until there is nothing to do, and answers what is to be seen then. */
  const settled = Effect.fnUntraced(function* (uid: string) {
    const { reconciler } = (yield* Registry).registrations.get(Preview.name) ?? assert.fail("no reconciler")
    for (let fence = 1n; fence <= 6n; fence++) {
      const record = Option.getOrThrow(yield* resources.get(orgId, uid))
      const deleting = record.deletionRequestedAt !== null
      const resource = { ...record, projectId, status: null, facts: {}, deleting, fence }
      const seen = yield* reconciler.observe(resource)
      if (seen._tag === "Absent" || deleting) return undefined
      if (seen.differences.length === 0) return seen
      yield* reconciler.converge(resource, seen)
    }
    return assert.fail("it does not settle")
  })
  const lookAt = (of: string) =>
    Effect.gen(function* () {
      yield* looks.sync
      yield* sql`
        update pull_request_look set lease_token = null,
          due_at = case when project_uid = ${of}::uuid then now() else now() + interval '1 day' end`
      for (const one of yield* looks.claim({
        most: 1,
        running: [],
        orgs: { holders: new Map(), others: 1 }
      })) {
        const { error } = yield* follow(one)
        yield* looks.settle(one, error, 3_600)
        if (error !== undefined) return yield* Effect.die(error)
      }
    })
  return {
    settled,
    deployments: Effect.map(resources.listKind(orgId, "Deployment", projectId), ({ length }) => length),
    sql,
    asked,
    resources,
    slug,
    comments,
    statuses,
    locked,
    manifests,
    refs,
    connectionIds,
    orgId,
    projectId,
    owner,
    repo,
    setRepo,
    previews,
    connect: (url: string | undefined) =>
      void (url === undefined ? forges.delete(owner) : forges.set(owner, url)),
    /** What the forge says of a pull request from now on. */
    say: (
      url: string,
      of: string,
      number: number,
      commit: string,
      state: PullRequest["state"] = "open",
      more: Partial<PullRequest> = {}
    ) => {
      const key = `${url}/${of}`
      const pulls = repositories.get(key) ?? new Map<number, PullRequest>()
      repositories.set(key, pulls)
      pulls.set(number, {
        ...{ number, state, title: `Change ${number}`, isDraft: false, url: "", isFork: false },
        ...{ head: { commit, branch: "change" }, base: { branch: "main" }, ...more }
      })
    },
    /** Syncs, and looks at the project if it is on the list. */
    look: lookAt(projectId),
    lookAt,
    /** As a user does it, and the reconciler after it. */
    close: (uid: string) =>
      Effect.andThen(
        resources.write(orgId, [{ action: "delete", uid }], actor),
        sql`update resource set deleted_at = now() where uid = ${uid}::uuid`
      )
  }
})
export type FollowWorld = Effect.Success<typeof followWorld>
