/** Git sources on a store of their own, with repositories in memory. Each source has an organization of its own. */
import { createHash } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as gitSource from "#reconcilers/git-source.ts"
import { GitSource, type GitSourceInput, type GitSourceSpec } from "#schemas/git-source.ts"
import { Authority } from "#src/access/Authority.ts"
import { layerRegions } from "#src/catalog/regions.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { ManifestRepository, RepositoryError } from "#src/git-sources/ManifestRepository.ts"
import { Reviews } from "#src/git-sources/Reviews.ts"
import * as manifest from "#src/manifest/services.ts"
import { Db } from "#src/store/Db.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

export type Source = Resource<GitSourceSpec> & { readonly slug: string }

const keys = KeyRing.layerOf(Redacted.make(`test:${Buffer.alloc(32, 7).toString("base64")}`))
const decode = Schema.decodeUnknownSync(GitSource.spec)

export const project = (slug: string, more: object = {}) => ({
  slug,
  name: slug,
  runtimeClass: "scale-to-zero",
  ...more
})

export const sourceWorld = Effect.gen(function* () {
  const secrets = memorySecrets()
  const context = yield* Layer.build(
    Layer.mergeAll(Resources.layer, Fingerprint.layer.pipe(Layer.provide(secrets.layer))).pipe(
      Layer.provideMerge(keys),
      Layer.provideMerge(testDb())
    )
  )
  const db = Context.get(context, Db)
  const resources = Context.get(context, Resources)
  /** By URL and ref; what a repository answers instead, if it is away. */
  const commits = new Map<string, { readonly commit: string; readonly text: string }>()
  const away = new Map<string, RepositoryError>()

  const push = ({ spec }: Pick<Source, "spec">, text: string, ref = "main") => {
    const commit = createHash("sha1").update(text).digest("hex")
    commits.set(`${spec.url} ${ref}`, { commit, text })
    commits.set(`${spec.url} ${commit}`, { commit, text })
    return commit
  }
  const manifestOf = ({ slug }: Pick<Source, "slug">, ...projects: ReadonlyArray<object>) =>
    JSON.stringify({ version: 1, organization: slug, projects })

  /** A source whose repository has one project, made by somebody with this role. */
  const makeSource = Effect.fnUntraced(function* (
    values: Partial<(typeof GitSourceInput)["Type"]> = {},
    role = "admin"
  ) {
    const { id: orgId, slug } = yield* Effect.provide(makeOrganization(), context)
    const [uid, user] = [uuid(), uuid()]
    yield* Effect.orDie(
      db.engine`insert into account (id, email, name) values (${user}, ${`${slug}@example.test`}, 'Ada')`
    )
    yield* Effect.orDie(
      db.engine`insert into member (org_id, id, user_id, role) values (${orgId}, ${uuid()}, ${user}, ${role})`
    )
    const spec = decode({
      url: `https://git.example.test/acme/${slug}.git`,
      principal: `user:${user}`,
      ...values
    })
    const source: Source = {
      ...{ orgId, uid, kind: "GitSource", projectId: null, environment: null, name: "platform" },
      ...{ parentUid: null, spec, generation: 1, status: null, facts: {}, deleting: false, fence: 1n, slug }
    }
    yield* Effect.orDie(
      resources.write(
        orgId,
        [
          {
            ...{ action: "create", uid, kind: "GitSource", projectId: null, environment: null },
            ...{ name: "platform", parentUid: null, spec, managedBy: "api" }
          }
        ],
        actor
      )
    )
    push(source, manifestOf(source, project("shop")))
    return source
  })

  /** Slugs of the projects that the source's organization has. */
  const projects = ({ orgId }: Pick<Source, "orgId">) =>
    Effect.map(Effect.orDie(resources.listKind(orgId, "Project", null)), (records) =>
      records.filter(({ deletionRequestedAt }) => deletionRequestedAt === null).map(({ name }) => name)
    )

  const repository = Layer.succeed(ManifestRepository, {
    resolve: ({ url }, ref) =>
      Effect.suspend(() => {
        const gone = away.get(url)
        const found = commits.get(`${url} ${ref}`)
        if (gone !== undefined) return Effect.fail(gone)
        return found === undefined
          ? Effect.fail(new RepositoryError({ code: "ref_not_found", message: `There is no ${ref}` }))
          : Effect.succeed(found.commit)
      }),
    read: ({ url }, commit, path = "svc.manifest.yaml") =>
      Effect.suspend(() => {
        const found = commits.get(`${url} ${commit}`)
        return found === undefined
          ? Effect.fail(new RepositoryError({ code: "ref_not_found", message: `There is no ${commit}` }))
          : Effect.succeed({ path, text: found.text })
      })
  })

  return { context, db, resources, away, repository, push, manifestOf, makeSource, projects }
})
export type SourceWorld = Effect.Success<typeof sourceWorld>

/** The services of the feature over that world. */
export const sourceServices = ({ context, repository }: SourceWorld) =>
  Layer.mergeAll(
    GitSources.layer,
    Reviews.layer,
    Authority.layer,
    repository,
    manifest.layer.pipe(Layer.provide(layerRegions))
  ).pipe(Layer.provideMerge(Layer.succeedContext(context)))

export const sourceLayer = (world: SourceWorld) =>
  gitSource.layer.pipe(Layer.provide(sourceServices(world)), Layer.provideMerge(Registry.layer))
