/** From a commit that was seen to its deployment: once, wherever a process is killed and whoever else looks. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import { Deployment } from "#schemas/deployment.ts"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { GitBranches } from "#src/git/GitBranches.ts"
import { makeLook } from "#src/git/look.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"

const commits = { first: "1".repeat(40), second: "2".repeat(40) }
let newest = commits.first
const sources = Layer.succeed(CommitSources, {
  resolve: (_, { repo }) =>
    Effect.sync(() => ({
      kind: "git" as const,
      url: `https://git.test/${repo}.git`,
      ref: "main",
      commit: newest
    })),
  bring: () => Effect.never
})
const services = Layer.mergeAll(GitBranches.layer, Resources.layer, sources).pipe(
  Layer.provideMerge(AppConfig.layerWith({}, {})),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

const lookWorld = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const branches = yield* GitBranches
  const resources = yield* Resources
  const { id: orgId } = yield* makeOrganization()
  const { projectId } = yield* makeProject(orgId, "shop")
  newest = commits.first
  yield* sql`insert into git_branch (org_id, project_uid, repo) values (${orgId}::uuid, ${projectId}::uuid, 'acme/shop')`
  /** As a process that begins now, or as one that is alone after the lease of another has ended. */
  const claim = Effect.gen(function* () {
    yield* sql`
      update git_branch set due_at = case when project_uid = ${projectId}::uuid then now() else now() + interval '1 day' end`
    const [one] = yield* branches.claim({
      ...{ most: 1, running: [], orgs: { holders: new Map(), others: 1 } }
    })
    return one ?? assert.fail("it is not due")
  })
  const deployed = Effect.map(resources.listKind(orgId, Deployment.name, projectId), (all) =>
    all.map(({ uid, spec }) => ({ uid, commit: (spec as { source: { commit: string } }).source.commit }))
  )
  const intent = Effect.map(
    sql<{ readonly commit: string | null; readonly uid: string | null }>`
      select commit_id as commit, deployment_uid as uid from git_branch where project_uid = ${projectId}::uuid`,
    ([row]) => row
  )
  const settle = (branch: Effect.Success<typeof claim>, error?: string) =>
    branches.settle(branch, { error, nextInSeconds: 3_600 })
  return { branches, resources, claim, deployed, intent, settle }
})

/** Looks by a process whose write number `at` is its last, `before` or after it is done. */
const killed = (resources: Resources["Service"], at: number, when: "before" | "after") => {
  let writes = 0
  const write: typeof resources.write = (...args) => {
    const isLast = writes++ === at
    if (isLast && when === "before") return Effect.interrupt
    return isLast ? Effect.andThen(resources.write(...args), Effect.interrupt) : resources.write(...args)
  }
  return Effect.provideService(makeLook, Resources, { ...resources, write })
}

layer(services, { excludeTestServices: true })("a commit that was seen", (it) => {
  for (const [at, when] of [
    [0, "before"],
    [0, "after"],
    [1, "before"],
    [1, "after"]
  ] as const)
    it.effect(`is deployed once, also where a process is killed ${when} its write ${at + 1}`, () =>
      Effect.gen(function* () {
        const { resources, claim, deployed, intent, settle } = yield* lookWorld
        const dying = yield* killed(resources, at, when)
        assert.isTrue(Exit.hasInterrupts(yield* Effect.exit(dying(yield* claim))))
        // The intent is there, whether or not it was carried out.
        const { uid, commit } = (yield* intent) ?? assert.fail("there is none")
        assert.strictEqual(commit, commits.first)
        assert.lengthOf(yield* deployed, at === 1 && when === "after" ? 1 : 0)

        const look = yield* makeLook
        const again = yield* claim
        assert.deepStrictEqual(yield* look(again), { error: undefined })
        yield* settle(again)
        assert.deepStrictEqual(yield* deployed, [{ uid, commit }])
        const later = yield* claim
        yield* look(later)
        yield* settle(later)
        assert.lengthOf(yield* deployed, 1)
      })
    )

  it.effect("by two processes is deployed by the one whose lease holds", () =>
    Effect.gen(function* () {
      const { claim, deployed, intent, settle } = yield* lookWorld
      const look = yield* makeLook
      const stale = yield* claim
      const holds = yield* claim
      // One that comes late says nothing of it, nor of another commit, nor that it is done.
      newest = commits.second
      yield* look(stale)
      yield* settle(stale)
      assert.deepStrictEqual([yield* deployed, yield* intent], [[], { commit: null, uid: null }])
      newest = commits.first
      yield* look(holds)
      newest = commits.second
      yield* look(stale)
      yield* settle(stale, "nothing")
      assert.deepStrictEqual(
        (yield* deployed).map(({ commit }) => commit),
        [commits.first]
      )
      yield* settle(holds)
      assert.deepStrictEqual(yield* intent, { commit: commits.first, uid: null })
      // At once: whichever claimed later.
      const both = [yield* claim, yield* claim]
      yield* Effect.all(both.map(look), { concurrency: 2 })
      yield* Effect.all(
        both.map((one) => settle(one)),
        { concurrency: 2 }
      )
      assert.sameMembers(
        (yield* deployed).map(({ commit }) => commit),
        [commits.first, commits.second]
      )
    })
  )
})
