/** From a push to a deployment: a real repository, and what its forge tells of it. */
import { createHmac } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { gitServer } from "./git-server.ts"
import { trustedAuthority } from "./trusted.ts"

/** Nothing is built: no engine answers there. Deployments wait, and are overtaken. */
const plane = testPlane(
  { containerSocket: "/nonexistent/engine.sock" },
  { SVC_BUILD_IMAGE: "localhost/none:1", SVC_GIT_POLL_SECONDS: "2" }
)
const world = plane.pipe(Layer.provideMerge(trustedAuthority))

/** A repository behind a connection, and a project of it. */
const connected = Effect.fnUntraced(function* (owner: string) {
  const { call, url } = yield* Plane
  const server = yield* gitServer
  const repo = yield* server.create(`${owner}/shop`)
  server.tokens.set(`${owner}/shop`, "canary-token")
  const made = yield* call("POST", "/v1/orgs/main/git-connections", {
    body: {
      name: owner,
      kind: "gitea",
      owner,
      url: `https://127.0.0.1:${server.port}`,
      token: "canary-token"
    }
  })
  assert.strictEqual(made.status, 201, made.text)
  const path = `/v1/orgs/main/projects/${owner}`
  const push = (delivery: string, body: unknown, secret = made.body.webhookSecret) =>
    Effect.promise(async () => {
      const text = JSON.stringify(body)
      const answer = await fetch(`${url}/v1/git/webhooks/${made.body.id}`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "x-gitea-event": "push",
          "x-gitea-delivery": delivery,
          "x-gitea-signature": createHmac("sha256", secret).update(text).digest("hex")
        },
        body: text
      })
      return answer.status
    })
  const project = call("POST", "/v1/orgs/main/projects", {
    body: {
      name: owner,
      slug: owner,
      runtimeClass: "scale-to-zero",
      git: { repo: `${owner}/shop` }
    }
  })
  const deployments = Effect.map(
    call("GET", `${path}/deployments?limit=100`),
    ({
      body
    }): ReadonlyArray<{
      state: string
      createdAt: string
      source: { commit: string; ref: string }
    }> => body
  )
  const pushed = (commit: string) => ({
    ref: "refs/heads/main",
    after: commit,
    repository: { full_name: `${owner.toUpperCase()}/shop`, default_branch: "main" }
  })
  return { repo, path, push, pushed, project, deployments, connection: made.body }
})

const app = (word: string) => ({
  "package.json": JSON.stringify({ name: "app", scripts: { start: `node ${word}.js` } })
})

layer(world, { excludeTestServices: true })("pushes", (it) => {
  it.effect(
    "of which many come at once, twice and out of order end in one deployment of the newest commit",
    () =>
      Effect.gen(function* () {
        const { sql, call } = yield* Plane
        const { repo, push, pushed, project, deployments, connection } = yield* connected("pusher")
        const first = yield* repo.commit(app("zero"))
        assert.strictEqual((yield* project).status, 201)
        // Connected before it has an app: what is there is deployed.
        yield* eventually("the first deployment", deployments, (all) => all.length === 1)
        assert.strictEqual((yield* deployments)[0]?.source.commit, first)

        const commits: Array<string> = []
        for (const word of ["one", "two", "three", "four", "five"])
          commits.push(yield* repo.commit(app(word)))
        const newest = commits.at(-1) ?? ""
        const told = [...commits.toReversed(), ...commits].map((commit, i) =>
          push(`d-${i % 5}`, pushed(commit))
        )
        assert.deepStrictEqual(new Set(yield* Effect.all(told, { concurrency: 5 })), new Set([200]))
        yield* eventually("the newest is deployed", deployments, ([last]) => last?.source.commit === newest)
        yield* eventually("the one before it is over", deployments, (all) =>
          all.slice(1).every(({ state }) => state === "superseded")
        )
        const kept = yield* sql(
          `select delivery_id from git_delivery where connection_id = '${connection.id}'`
        )
        assert.lengthOf(kept, 5)
        // Whatever is told again: nothing is made of a commit twice.
        yield* push("later", pushed(first))
        yield* eventually(
          "it was looked at again",
          sql("select 1 from git_branch where told_at < claimed_at and lease_token is null"),
          (rows) => rows.length > 0
        )
        const made = (yield* deployments).filter(({ source }) => source.commit === newest)
        assert.lengthOf(made, 1)
        const listed = yield* call("GET", "/v1/orgs/main/git-connections")
        assert.notInclude(listed.text, "canary-token")
      })
  )

  it.effect("that nobody told of are found all the same", () =>
    Effect.gen(function* () {
      const { repo, project, deployments } = yield* connected("lost")
      yield* repo.commit(app("zero"))
      yield* project
      yield* eventually("the first deployment", deployments, (all) => all.length === 1)
      const next = yield* repo.commit(app("one"))
      yield* eventually("the newest is deployed", deployments, ([last]) => last?.source.commit === next)
    })
  )

  it.effect("that are not proven are refused, and nothing of them is kept", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* Plane
      const { push, pushed, connection } = yield* connected("forged")
      assert.strictEqual(yield* push("d", pushed("0".repeat(40)), "another secret of this length"), 401)
      const kept = yield* sql(`select 1 from git_delivery where connection_id = '${connection.id}'`)
      assert.lengthOf(kept, 0)
      const post = (id: string, body: string) =>
        Effect.promise(() =>
          fetch(`${url}/v1/git/webhooks/${id}`, { method: "POST", body }).then(({ status }) => status)
        )
      assert.strictEqual(yield* post(connection.id, "{}"), 401)
      assert.strictEqual(yield* post(connection.id, "x".repeat(3 * 1024 * 1024)), 413)
      assert.strictEqual(yield* post("019aaaaa-0000-7000-8000-000000000000", "{}"), 404)
      assert.strictEqual(yield* post("nonsense", "{}"), 404)
    })
  )

  it.effect("are not needed: a branch, a tag or a commit is deployed by its name", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { repo, path, project, connection } = yield* connected("named")
      const one = yield* repo.commit(app("one"))
      const two = yield* repo.commit(app("two"), { branch: "next" })
      yield* project
      const deploy = (git: unknown) =>
        call("POST", `${path}/deployments?environment=preview`, { body: { git } })
      const sources = [yield* deploy({}), yield* deploy({ ref: "next" }), yield* deploy({ ref: one })].map(
        ({ status, body }) => [status, body.source.ref, body.source.commit, body.source.connection]
      )
      assert.deepStrictEqual(sources, [
        [202, "main", one, connection.id],
        [202, "next", two, connection.id],
        [202, one, one, connection.id]
      ])
      const none = yield* deploy({ ref: "nothing" })
      assert.deepStrictEqual([none.status, none.body.errors[0].pointer], [422, "/git/ref"])
      assert.strictEqual((yield* deploy({ ref: "--upload-pack=x" })).status, 422)
      assert.strictEqual((yield* deploy({ repo: "named/other" })).status, 422)
      const both = yield* call("POST", `${path}/deployments`, { body: { git: {}, image: "a" } })
      assert.strictEqual(both.status, 422)
    })
  )
})
