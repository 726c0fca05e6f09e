/** Which repository is asked for a commit, and with what. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Uploads } from "#src/builds/Uploads.ts"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { Forge } from "#src/git/Forge.ts"
import { GitBranches } from "#src/git/GitBranches.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import { GitError } from "#src/git/GitError.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

const commit = "a".repeat(40)
const asked: Array<{ readonly url: string; readonly password: string | undefined }> = []
const fetched: Array<string | undefined> = []
const nobody = Layer.mock(GitFetch)({
  fetch: ({ credentialBelow }) =>
    Effect.suspend(() => {
      fetched.push(credentialBelow)
      return new GitError({ code: "ref_not_found", message: "none" })
    }),
  resolve: ({ url, credential }) =>
    Effect.sync(() => {
      asked.push({ url, password: credential && Redacted.value(credential.token) })
      return commit
    })
})

const world = Layer.mergeAll(CommitSources.layer, GitBranches.layer).pipe(
  Layer.provideMerge(Forge.layer),
  Layer.provideMerge(GitConnections.layer),
  Layer.provideMerge(Layer.mergeAll(Resources.layer, nobody, Layer.mock(Uploads)({ fileOf: () => "/none" }))),
  Layer.provide(Outbound.layer),
  Layer.provide(AppConfig.layerWith({})),
  Layer.provide(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))),
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

const connect = Effect.fnUntraced(function* (orgId: string, url: string, owner = "acme") {
  const { connection } = yield* (yield* GitConnections).create(
    orgId,
    {
      ...{ name: owner, kind: "gitea", url, owner, appId: null, installationId: null },
      ...{ token: Redacted.make("canary"), privateKey: undefined, webhookSecret: undefined }
    },
    actor,
    newReservation(false)
  )
  return connection.id
})

layer(world, { excludeTestServices: true })("a commit", (it) => {
  it.effect("is asked of the owner's connection, or of a repository that is named by its whole URL", () =>
    Effect.gen(function* () {
      const org = yield* makeOrganization()
      const { resolve } = yield* CommitSources
      const ask = (repo: string, connection?: string) =>
        resolve(org.id, { repo, ref: "main", connection }).pipe(Effect.result)
      asked.length = 0
      // Whoever has the name at some forge is not who was meant.
      const unknown = yield* ask("acme/shop")
      assert.isTrue(unknown._tag === "Failure" && /whole URL/.test(unknown.failure.message))
      assert.deepStrictEqual(asked, [])

      const id = yield* connect(org.id, "https://git.example.test")
      const known = yield* ask("acme/shop", id)
      assert.strictEqual(known._tag === "Success" && known.success.connection, id)
      const open = yield* ask("https://github.com/acme/shop")
      assert.deepStrictEqual(open._tag === "Success" && [open.success.connection, open.success.commit], [
        undefined,
        commit
      ])
      assert.deepStrictEqual(asked.splice(0), [
        { url: "https://git.example.test/acme/shop.git", password: "canary" },
        { url: "https://github.com/acme/shop", password: undefined }
      ])

      // Of a look that began before the connection was made anew, at another forge, or is another owner's.
      assert.strictEqual((yield* ask("acme/shop", uuid()))._tag, "Failure")
      yield* (yield* GitConnections).update(org.id, id, { owner: "other" }, actor)
      assert.strictEqual((yield* ask("acme/shop", id))._tag, "Failure")
      assert.deepStrictEqual(asked, [])
    })
  )

  it.effect(
    "gives its submodules the credential below its owner, and none where somebody else wrote it",
    () =>
      Effect.gen(function* () {
        const org = yield* makeOrganization()
        const connection = yield* connect(org.id, "https://git.example.test")
        const { bring, resolve } = yield* CommitSources
        const source = yield* resolve(org.id, { repo: "acme/shop", ref: "main", connection })
        for (const one of [source, { ...source, fork: true }]) yield* Effect.flip(bring(org.id, one))
        assert.deepStrictEqual(fetched.splice(0), ["https://git.example.test/acme", undefined])
      })
  )

  it.effect("of a branch is seen anew when another connection opens the repository", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const { sync } = yield* GitBranches
      const first = yield* connect(org.id, "https://git.example.test")
      const spec = { name: "Shop", runtimeClass: "scale-to-zero", git: { repo: "Acme/shop" } }
      const uid = uuid()
      yield* (yield* Resources).write(
        org.id,
        [
          {
            ...{ action: "create", uid, kind: "Project", projectId: null, environment: null, name: "shop" },
            ...{ parentUid: null, spec, managedBy: "api" }
          }
        ],
        actor
      )
      const row = sql<{ readonly connection: string; readonly commit: string | null; readonly xmax: string }>`
        select connection_id as connection, commit_id as commit, xmax::text from git_branch
        where org_id = ${org.id}::uuid`
      yield* sync
      yield* sql`update git_branch set commit_id = ${commit} where org_id = ${org.id}::uuid`
      const [before] = yield* row
      yield* sync
      // Not even locked where nothing differs.
      assert.deepStrictEqual((yield* row)[0], before)
      assert.deepStrictEqual([before?.connection, before?.commit], [first, commit])
      yield* (yield* GitConnections).remove(org.id, first, actor)
      const second = yield* connect(org.id, "https://other.example.test")
      yield* sync
      const [after] = yield* row
      assert.deepStrictEqual([after?.connection, after?.commit], [second, null])
    })
  )
})

layer(world, { excludeTestServices: true })("a connection", (it) => {
  it.effect("keeps what each of many changes at once says", () =>
    Effect.gen(function* () {
      const org = yield* makeOrganization()
      const { update, open } = yield* GitConnections
      const id = yield* connect(org.id, "https://git.example.test")
      for (let round = 0; round < 5; round++) {
        const [token, webhookSecret] = [`token-${round}`, `secret-${round}`].map((text) =>
          Redacted.make(text)
        )
        yield* Effect.all(
          [update(org.id, id, { token }, actor), update(org.id, id, { webhookSecret }, actor)],
          { concurrency: 2 }
        )
        const { secrets } = Option.getOrThrow(yield* open(org.id, { id }))
        assert.deepStrictEqual(
          [secrets.token && Redacted.value(secrets.token), Redacted.value(secrets.webhookSecret)],
          [`token-${round}`, `secret-${round}`]
        )
      }
    })
  )
})

layer(world, { excludeTestServices: true })("projects with repositories", (it) => {
  it.effect("are found by their index among all that organizations have", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const plan = yield* sql.withTransaction(
        Effect.andThen(
          sql`set local enable_seqscan = off`,
          sql<{ readonly "QUERY PLAN": string }>`
            explain select org_id, uid from resource
            where kind = 'Project' and deletion_requested_at is null and spec->'git'->>'repo' is not null`
        )
      )
      assert.include(plan.map((row) => row["QUERY PLAN"]).join("\n"), "resource_with_repository")
    })
  )
})
