/**
 * What GitHub sends, as its documentation shows it: all of it is taken, and what is told of pull requests makes the previews
 * what the forge says, whether it is told in order, again, late, not at all, or by somebody else.
 */
import { createHmac } from "node:crypto"
import * as fs from "node:fs"
import { createRequire } from "node:module"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServer from "effect/http/HttpServer"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { GitBranches } from "#src/git/GitBranches.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import * as intake from "#src/git/intake.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { followServices, followWorld } from "#test/previews/world.ts"
import { actor, uuid } from "#test/setup/fixtures.ts"

const Examples = Schema.fromJsonString(
  Schema.Array(
    Schema.Struct({
      name: Schema.String,
      examples: Schema.Array(Schema.Record(Schema.String, Schema.Unknown))
    })
  )
)
const examples = Schema.decodeUnknownSync(Examples)(
  fs.readFileSync(createRequire(import.meta.url).resolve("@octokit/webhooks-examples"), "utf8")
)
const examplesOf = (name: string) => examples.find((one) => one.name === name)?.examples ?? []
const secret = "a secret of the webhook"
const forge = "https://forge.test"
const commits = { first: "1".repeat(40), second: "2".repeat(40) }

const services = Layer.mergeAll(GitConnections.layer, GitBranches.layer).pipe(
  Layer.provideMerge(followServices)
)

/** A connection to GitHub, and the way in for what that tells. */
const intakeWorld = Effect.fnUntraced(function* (named: { readonly repo?: string } = {}) {
  const world = yield* followWorld
  const repo = named.repo ?? world.repo
  const { connection } = yield* (yield* GitConnections).create(
    world.orgId,
    {
      ...{ name: "github", kind: "github_app", url: "https://github.com", owner: repo.split("/")[0] ?? "" },
      ...{ appId: "1", installationId: "2", token: undefined, privateKey: Redacted.make("none") },
      webhookSecret: Redacted.make(secret)
    },
    actor,
    newReservation(false)
  )
  const context = yield* Effect.context<Layer.Success<typeof services>>()
  const { handler, dispose } = HttpRouter.toWebHandler(
    intake.layer.pipe(Layer.provide(Layer.succeedContext(context)), Layer.provide(HttpServer.layerServices)),
    { disableLogger: true }
  )
  yield* Effect.addFinalizer(() => Effect.promise(dispose))
  const deliver = (event: string, payload: object, id: string = uuid(), key = secret) =>
    Effect.promise(async () => {
      const body = JSON.stringify(payload)
      const request = new Request(`https://api.test/v1/git/webhooks/${connection.id}`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "x-github-event": event,
          "x-github-delivery": id,
          "x-hub-signature-256": `sha256=${createHmac("sha256", key).update(body).digest("hex")}`
        },
        body
      })
      return (await handler(request)).status
    })
  /** The documented payload of that action, of our repository and of this pull request. */
  const pullRequest = (action: string, number: number) => {
    const found = examplesOf("pull_request").find((one) => one["action"] === action)
    if (found === undefined) return assert.fail(`there is no ${action}`)
    return {
      ...found,
      number,
      pull_request: { ...(found["pull_request"] as object), number },
      repository: { ...(found["repository"] as object), full_name: repo }
    }
  }
  const { sql, projectId } = world
  /** Whether the project is looked at next, rather than in an hour. */
  const isDue = Effect.map(
    sql<{ readonly due: boolean }>`
      select due_at <= now() as due from pull_request_look where project_uid = ${projectId}::uuid`,
    ([row]) => row?.due === true
  )
  return { ...world, connection, deliver, pullRequest, isDue }
})

layer(services, { excludeTestServices: true })("what GitHub sends", (it) => {
  it.effect("is taken in each of its forms, and understood where it is about commits and pull requests", () =>
    Effect.gen(function* () {
      const { deliver, sql, connection } = yield* intakeWorld({ repo: "codertocat/hello-world" })
      const ours = ["push", "pull_request", "installation", "installation_repositories"]
      for (const { name, examples: all } of examples)
        for (const [at, one] of all.slice(0, ours.includes(name) ? undefined : 1).entries())
          assert.strictEqual(yield* deliver(name, one), 200, `${name} ${at}`)
      const kept = yield* sql<{ readonly event: string; readonly count: number; readonly named: number }>`
        select event, count(*)::int as count, count(coalesce(branch, pull_request::text))::int as named
        from git_delivery where connection_id = ${connection.id}::uuid and repo is not null group by event order by event`
      const [pulls, pushes] = [examplesOf("pull_request").length, examplesOf("push").length]
      assert.isAbove(pulls, 20)
      assert.deepStrictEqual(kept, [
        { event: "pull_request", count: pulls, named: pulls },
        { event: "push", count: pushes, named: pushes }
      ])
    })
  )

  it.effect("of a pull request makes its preview what the forge says, once for each time", () =>
    Effect.gen(function* () {
      const { deliver, pullRequest, isDue, say, connect, setRepo, repo, look, previews, close } =
        yield* intakeWorld()
      yield* setRepo(repo)
      connect(forge)
      yield* look
      const told = Effect.fnUntraced(function* (action: string, id?: string) {
        assert.isFalse(yield* isDue)
        assert.strictEqual(yield* deliver("pull_request", pullRequest(action, 3), id), 200)
        assert.isTrue(yield* isDue, action)
        yield* look
      })
      const seen = Effect.map(previews, (all) =>
        all.map(({ pullRequest: number, commit }) => [number, commit])
      )

      say(forge, repo, 3, commits.first)
      yield* told("opened")
      assert.deepStrictEqual(yield* seen, [[3, commits.first]])
      say(forge, repo, 3, commits.second)
      yield* told("synchronize", "moved")
      yield* told("synchronize", "moved")
      // Late.
      yield* told("opened")
      assert.deepStrictEqual(yield* seen, [[3, commits.second]])

      // By somebody else.
      assert.strictEqual(
        yield* deliver("pull_request", pullRequest("closed", 3), uuid(), "another secret"),
        401
      )
      assert.isFalse(yield* isDue)
      // The forge does not say so.
      yield* told("closed")
      assert.deepStrictEqual(yield* seen, [[3, commits.second]])

      // Somebody closed the preview; then the pull request was closed, which got lost, and opened again.
      const closeIt = Effect.gen(function* () {
        const [{ uid } = assert.fail("there is none")] = yield* previews
        yield* close(uid)
        yield* look
        assert.isEmpty(yield* seen)
      })
      yield* closeIt
      yield* told("synchronize")
      assert.isEmpty(yield* seen)
      yield* told("reopened", "again")
      assert.deepStrictEqual(yield* seen, [[3, commits.second]])
      yield* closeIt
      yield* told("reopened", "again")
      assert.isEmpty(yield* seen)
      yield* told("reopened")
      assert.lengthOf(yield* seen, 1)

      // Nobody tells that it is merged.
      say(forge, repo, 3, commits.second, "merged")
      yield* look
      assert.isEmpty(yield* seen)
      yield* told("reopened")
      assert.isEmpty(yield* seen)
    })
  )
})
