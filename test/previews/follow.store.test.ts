/** What looks at pull requests make of what is there: who pays, who closed what, and whose numbers they are. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { actor, uuid } from "#test/setup/fixtures.ts"
import { followServices, followWorld } from "./world.ts"

const forge = "https://forge.test"
const commits = { first: "1".repeat(40), second: "2".repeat(40) }

layer(followServices, { excludeTestServices: true })("looks at pull requests", (it) => {
  it.effect("make no previews for who does not pay, and close those that are over", () =>
    Effect.gen(function* () {
      const { sql, orgId, repo, setRepo, connect, say, look, previews, settled, deployments } =
        yield* followWorld
      yield* setRepo(repo)
      connect(forge)
      say(forge, repo, 1, commits.first)
      yield* look
      yield* sql`update organization set billing_status = 'past_due' where id = ${orgId}::uuid`
      say(forge, repo, 1, commits.second)
      say(forge, repo, 2, commits.first)
      yield* look
      assert.deepStrictEqual(
        (yield* previews).map(({ pullRequest }) => pullRequest),
        [1]
      )
      const [{ uid } = assert.fail("there is none")] = yield* previews
      assert.strictEqual((yield* settled(uid))?.note?.reason, "BillingInactive")
      assert.strictEqual(yield* deployments, 0)
      say(forge, repo, 1, commits.second, "merged")
      yield* look
      assert.isEmpty(yield* previews)
      yield* sql`update organization set billing_status = 'active' where id = ${orgId}::uuid`
      yield* look
      assert.deepStrictEqual(
        (yield* previews).map(({ pullRequest }) => pullRequest),
        [2]
      )
      const [second = assert.fail("there is none")] = yield* previews
      assert.isUndefined((yield* settled(second.uid))?.note)
      assert.strictEqual(yield* deployments, 1)
    })
  )

  it.effect("leave closed what somebody closed, until it has a new commit or is opened again", () =>
    Effect.gen(function* () {
      const { repo, setRepo, connect, say, look, previews, close } = yield* followWorld
      const closed = Effect.gen(function* () {
        const [one = assert.fail("there is none")] = yield* previews
        yield* close(one.uid)
        for (let looks = 0; looks < 2; looks++) yield* look
        assert.isEmpty(yield* previews)
      })
      yield* setRepo(repo)
      connect(forge)
      say(forge, repo, 1, commits.first)
      yield* look
      yield* closed
      say(forge, repo, 1, commits.second)
      yield* look
      yield* closed
      say(forge, repo, 1, commits.second, "closed")
      yield* look
      say(forge, repo, 1, commits.second)
      yield* look
      assert.deepStrictEqual(
        (yield* previews).map(({ commit }) => commit),
        [commits.second]
      )
    })
  )

  it.effect("leave closed what has expired", () =>
    Effect.gen(function* () {
      const { sql, repo, setRepo, connect, say, look, previews, settled } = yield* followWorld
      yield* setRepo(repo)
      connect(forge)
      say(forge, repo, 1, commits.first)
      yield* look
      const [{ uid } = assert.fail("there is none")] = yield* previews
      const past = '"2020-01-01T00:00:00.000Z"'
      yield* sql`
        update resource set spec = jsonb_set(spec, '{expiresAt}', ${past}::text::jsonb) where uid = ${uid}::uuid`
      assert.isUndefined(yield* settled(uid))
      yield* look
      assert.isEmpty(yield* previews)
    })
  )

  it.effect("take over what somebody made by hand for an open pull request, and close it with that", () =>
    Effect.gen(function* () {
      const {
        resources,
        orgId,
        projectId,
        repo,
        setRepo,
        connect,
        say,
        look,
        previews,
        settled,
        deployments
      } = yield* followWorld
      yield* setRepo(repo)
      connect(forge)
      const make = Effect.fnUntraced(function* (number: number, values: object) {
        const spec = { pullRequest: number, commit: commits.first, expiresAt: null, ...values }
        const place = { kind: "Preview", projectId, environment: null, name: `preview-${number}` }
        const uid = uuid()
        yield* resources.write(
          orgId,
          [{ action: "create", uid, ...place, parentUid: projectId, spec, managedBy: "api" }],
          actor
        )
        return uid
      })
      const own = yield* make(1, { fork: true })
      // Nothing is said of its number: it stays whose it is.
      const other = yield* make(2, {})
      say(forge, repo, 1, commits.second)
      say(forge, repo, 3, commits.second)
      // An environment that somebody named so before: it stays theirs, and the preview says so.
      const place = { kind: "Environment", projectId, environment: null, name: "preview-3" }
      const environment = uuid()
      yield* resources.write(
        orgId,
        [{ action: "create", uid: environment, ...place, parentUid: projectId, spec: {}, managedBy: "api" }],
        actor
      )
      yield* look
      const taken = (yield* previews).find(({ uid }) => uid === own)
      const repository = `${forge}/${repo}.git`
      assert.deepInclude(taken, { followed: true, commit: commits.second, fork: true, repository })
      assert.strictEqual((yield* settled(own))?.note?.reason, "ApprovalNeeded")
      assert.strictEqual(yield* deployments, 1)
      const third = (yield* previews).find(({ pullRequest }) => pullRequest === 3)?.uid ?? ""
      assert.strictEqual((yield* Effect.flip(settled(third))).message.includes("preview-3"), true)

      for (const number of [1, 3]) say(forge, repo, number, commits.second, "closed")
      yield* look
      assert.deepStrictEqual(
        (yield* previews).map(({ uid }) => uid),
        [other]
      )
      const [kept] = yield* resources
        .listKind(orgId, "Environment", projectId)
        .pipe(Effect.map((all) => all.filter(({ uid }) => uid === environment)))
      assert.isNull(kept?.deletionRequestedAt)
    })
  )

  it.effect("close previews of another repository, and never ask for their numbers in this one", () =>
    Effect.gen(function* () {
      const { asked, owner, repo, setRepo, connect, say, look, previews } = yield* followWorld
      yield* setRepo(repo)
      connect(forge)
      for (const number of [1, 2]) say(forge, repo, number, commits.first)
      yield* look
      // The same name at another server, then another name: the number 1 is there in each, open.
      for (const [url, other] of [
        ["https://other.test", repo],
        ["https://other.test", `${owner}/blog`]
      ] as const) {
        const before = (yield* previews).map(({ uid }) => uid)
        yield* setRepo(other)
        connect(url)
        say(url, other, 1, commits.first)
        yield* look
        assert.isEmpty(yield* previews)
        yield* look
        const [one, ...more] = yield* previews
        assert.deepStrictEqual([one?.repository, more.length], [`${url}/${other}.git`, 0])
        assert.notInclude(before, one?.uid)
      }
      assert.isEmpty(asked.filter((one) => one.includes(owner)))
    })
  )

  it.effect(
    "close previews of a repository that has been out of reach for long, and make them again later",
    () =>
      Effect.gen(function* () {
        const { sql, projectId, repo, setRepo, connect, say, look, previews } = yield* followWorld
        const length = Effect.map(previews, (all) => all.length)
        const anHourLater = sql`
        update pull_request_look set unconnected_since = unconnected_since - interval '61 minutes'
        where project_uid = ${projectId}::uuid`
        connect(forge)
        say(forge, repo, 1, commits.first)
        for (const [take, give] of [
          [Effect.sync(() => connect(undefined)), Effect.sync(() => connect(forge))],
          [setRepo(undefined), setRepo(repo)]
        ] as const) {
          yield* setRepo(repo)
          yield* look
          assert.strictEqual(yield* length, 1)
          yield* take
          for (let looks = 0; looks < 2; looks++) yield* look
          assert.strictEqual(yield* length, 1)
          yield* anHourLater
          yield* look
          assert.strictEqual(yield* length, 0)
          yield* give
          yield* look
          assert.strictEqual(yield* length, 1)
        }
      })
  )
})
