/** Previews follow the pull requests of a repository, whatever its forge tells, forgets, repeats or tells late. */
import { createHmac } from "node:crypto"
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { mostForks } from "#src/previews/follow.ts"
import { gitServer } from "#test/git/git-server.ts"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { trust } from "#test/setup/s3.ts"
import { eventually } from "#test/setup/wait.ts"

const authority = CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))
const trusted = Effect.gen(function* () {
  const before = tls.getCACertificates("default")
  yield* Effect.addFinalizer(() => Effect.sync(() => tls.setDefaultCACertificates(before)))
  trust((yield* CertificateAuthority).caPem)
})
const worldOf = (pollSeconds: number) =>
  testPlane(
    // Nothing is built: no engine answers there, and deployments wait.
    { containerSocket: "/nonexistent/engine.sock" },
    { SVC_BUILD_IMAGE: "localhost/none:1", SVC_GIT_POLL_SECONDS: String(pollSeconds) }
  ).pipe(Layer.provideMerge(Layer.effectDiscard(trusted)), Layer.provideMerge(authority))

const app = { "package.json": JSON.stringify({ name: "app", scripts: { start: "node app.js" } }) }

/** A project whose repository is at a forge with pull requests: as Gitea answers for them, and nothing more of it. */
const connected = Effect.fnUntraced(function* (owner: string) {
  const { call, url } = yield* Plane
  const server = yield* gitServer
  const repo = yield* server.create(`${owner}/shop`)
  const base = yield* repo.commit(app)
  const pulls = new Map<number, { state: string; merged: boolean; sha: string; from: string }>()
  const shown = (number: number) => {
    const pull = pulls.get(number)
    if (pull === undefined) return undefined
    const { state, merged, sha, from } = pull
    return {
      ...{ number, title: `Change ${number}`, state, merged, html_url: `https://git.example.test/${number}` },
      head: { ref: "change", sha, repo: { full_name: `${from}/shop` } },
      base: { ref: "main", sha: base, repo: { full_name: `${owner}/shop` } }
    }
  }
  const comments = new Map<number, { readonly number: number; body: string }>()
  /** Pull requests that take no comments. */
  const locked = new Set<number>()
  const statuses: Array<{ readonly commit: string; readonly context: string; readonly state: string }> = []
  server.instead = (request, response) => {
    const answer = (status: number, body: unknown) =>
      void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
    if (request.url === "/api/v1/user") {
      answer(200, { login: "svc-bot" })
      return true
    }
    const said =
      /^\/api\/v1\/repos\/[^/]+\/shop\/(?:issues\/(?:comments\/(\d+)|(\d+)\/comments)|statuses\/(\w+))/.exec(
        request.url ?? ""
      )
    if (said !== null) {
      const [, id, of, commit] = said
      if (locked.has(Number(of))) {
        answer(403, {})
        return true
      }
      if (request.method === "GET") {
        const all = [...comments].filter(([, { number }]) => number === Number(of))
        answer(
          200,
          all.map(([key, { body }]) => ({ id: key, body, user: { login: "svc-bot" } }))
        )
        return true
      }
      let text = ""
      request.on("data", (chunk) => {
        text += chunk
      })
      request.on("end", () => {
        const given = JSON.parse(text)
        const known = comments.get(Number(id))
        if (commit !== undefined) statuses.push({ commit, ...given })
        else if (known !== undefined) known.body = given.body
        else comments.set(comments.size + 1, { number: Number(of), body: given.body })
        answer(201, {})
      })
      return true
    }
    const asked = /^\/api\/v1\/repos\/[^/]+\/shop\/pulls(?:\/(\d+))?(\?.*)?$/.exec(request.url ?? "")
    if (asked === null) return false
    const [, number, query = ""] = asked
    const all = query.includes("page=1") ? [...pulls.keys()].map(shown) : []
    const found = number === undefined ? all.filter((pull) => pull?.state === "open") : shown(Number(number))
    response
      .writeHead(found === undefined ? 404 : 200, { "content-type": "application/json" })
      .end(JSON.stringify(found ?? {}))
    return true
  }
  const made = yield* call("POST", "/v1/orgs/main/git-connections", {
    body: { name: owner, kind: "gitea", owner, url: `https://127.0.0.1:${server.port}`, token: "a-token" }
  })
  assert.strictEqual(made.status, 201, made.text)
  const tell = (delivery: string, number: number, secret: string = made.body.webhookSecret) =>
    Effect.promise(async () => {
      const text = JSON.stringify({
        pull_request: { number },
        repository: { full_name: `${owner}/shop` }
      })
      const answer = await fetch(`${url}/v1/git/webhooks/${made.body.id}`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "x-gitea-event": "pull_request",
          "x-gitea-delivery": delivery,
          "x-gitea-signature": createHmac("sha256", secret).update(text).digest("hex")
        },
        body: text
      })
      return answer.status
    })
  const project = yield* call("POST", "/v1/orgs/main/projects", {
    body: { name: owner, slug: owner, runtimeClass: "scale-to-zero", git: { repo: `${owner}/shop` } }
  })
  assert.strictEqual(project.status, 201, project.text)
  const path = `/v1/orgs/main/projects/${owner}`
  const previews = Effect.map(call("GET", `${path}/previews`), ({ body }): Answer["body"] => body)
  const deployed = (environment: string) =>
    Effect.map(call("GET", `${path}/deployments?environment=${environment}`), ({ body }) =>
      body.map(({ source }: { source: { commit: string } }) => source.commit)
    )
  const connection: string = made.body.id
  const repository = `https://127.0.0.1:${server.port}/${owner}/shop.git`
  return {
    repo,
    pulls,
    tell,
    previews,
    deployed,
    path,
    owner,
    comments,
    statuses,
    locked,
    connection,
    repository
  }
})

layer(worldOf(3_600), { excludeTestServices: true })("pull requests that are told of", (it) => {
  it.effect(
    "open, move, close and open previews again, in whatever order and however often that is told",
    () =>
      Effect.gen(function* () {
        const { sql, call } = yield* Plane
        const { repo, pulls, tell, previews, deployed, path, owner } = yield* connected("teller")
        const [first, second] = [
          yield* repo.commit({ ...app, a: "1" }, { branch: "change" }),
          yield* repo.commit({ ...app, a: "2" }, { branch: "change" })
        ]
        yield* eventually(
          "the project is followed",
          sql(`select 1 from pull_request_look where repo = '${owner}/shop'`),
          (rows) => rows.length === 1
        )
        pulls.set(4, { state: "open", merged: false, sha: first, from: owner })
        assert.strictEqual(yield* tell("opened", 4), 200)
        yield* eventually("it is there", previews, ([one]) => one?.status === "open" && one.commit === first)
        yield* eventually("its commit is deployed", deployed("preview-4"), ([one]) => one === first)
        const [opened] = yield* previews
        assert.deepInclude(opened, { pullRequest: 4, title: "Change 4", trusted: true, expiresAt: null })

        pulls.set(4, { state: "open", merged: false, sha: second, from: owner })
        pulls.set(5, { state: "open", merged: false, sha: first, from: "stranger" })
        yield* Effect.all([tell("synchronized", 4), tell("opened", 4), tell("other", 5)], { concurrency: 3 })
        yield* eventually("it has moved", previews, (all) =>
          all.some((one: { commit: string }) => one.commit === second)
        )
        yield* eventually("the fork's is there", previews, (all) =>
          all.some((one: { pullRequest: number }) => one.pullRequest === 5)
        )
        const fork = (yield* previews).find((one: { pullRequest: number }) => one.pullRequest === 5)
        assert.deepInclude(fork, { fork: true, trusted: false, branchId: null })
        yield* eventually("the newest is deployed", deployed("preview-4"), ([one]) => one === second)

        // Merged; what is told of it comes after it was opened again by somebody who heard of it late.
        pulls.set(4, { state: "closed", merged: true, sha: second, from: owner })
        assert.strictEqual(yield* tell("forged", 4, "another secret"), 401)
        assert.strictEqual((yield* previews).length, 2)
        yield* Effect.all([tell("closed", 4), tell("synchronized", 4)], { concurrency: 2 })
        yield* eventually("it is gone", previews, (all) => all.length === 1)
        const environments = yield* call("GET", `${path}/environments`)
        assert.notInclude(environments.text, `"preview-4"`)
        yield* tell("opened", 4)
        yield* eventually(
          "it was looked at again",
          sql("select 1 from pull_request_look where told_at < claimed_at and lease_token is null"),
          (rows) => rows.length > 0
        )
        assert.strictEqual((yield* previews).length, 1)

        pulls.set(4, { state: "open", merged: false, sha: second, from: owner })
        yield* tell("reopened", 4)
        yield* eventually("it is there again", previews, (all) =>
          all.some(
            (one: { pullRequest: number; status: string }) => one.pullRequest === 4 && one.status === "open"
          )
        )
      })
  )

  it.effect("show what merging makes of the manifest that svc.yaml names, and have that applied", () =>
    Effect.gen(function* () {
      const { sql, call } = yield* Plane
      const { repo, pulls, tell, owner, comments, statuses, connection, repository } =
        yield* connected("planner")
      const body = { name: "planner", url: repository, connection, reviewed: true }
      const source = yield* call("POST", "/v1/orgs/main/git-sources", { body })
      assert.strictEqual(source.status, 201, source.text)
      const files = {
        ...app,
        "svc.yaml": "manifest: deploy/all.yaml\n",
        "deploy/all.yaml":
          "version: 1\norganization: main\nprojects:\n  - { slug: planned, name: Planned, runtimeClass: scale-to-zero }\n"
      }
      const sha = yield* repo.commit(files, { branch: "change" })
      yield* eventually(
        "the source and its repository are known",
        sql(
          `select 1 from pull_request_look, git_source where repo = '${owner}/shop' and uid = '${source.body.id}'`
        ),
        (rows) => rows.length === 1
      )
      pulls.set(6, { state: "open", merged: false, sha, from: owner })
      yield* tell("planned", 6)
      const said = Effect.sync(() => [...comments.values()][0]?.body ?? "")
      yield* eventually("the plan is shown", said, (text) => text.includes("- `Project/planned`"))
      assert.isTrue((yield* said).includes("`deploy/all.yaml`"))
      const plans = Effect.sync(() => statuses.filter(({ context }) => context === "svc/plan"))
      yield* eventually("it is a status", plans, ([one]) => one?.commit === sha && one.state === "success")
      yield* eventually(
        "it is kept as shown",
        sql(`select 1 from git_source_review where source_uid = '${source.body.id}' and digest is not null`),
        (rows) => rows.length === 1
      )
      const slugs = Effect.map(call("GET", "/v1/orgs/main/projects"), ({ text }) => text)
      assert.notInclude(yield* slugs, `"planned"`)

      yield* repo.commit(files)
      pulls.set(6, { state: "closed", merged: true, sha, from: owner })
      yield* tell("merged", 6)
      yield* eventually("it is applied", slugs, (text) => text.includes(`"planned"`))
      yield* eventually("that is told", said, (text) => /applied at [0-9a-f]{12}/.test(text))
    })
  )
})

layer(worldOf(2), { excludeTestServices: true })("pull requests that nobody told of", (it) => {
  it.effect("are found all the same, open and closed; one that the forge does not know stays as it is", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { repo, pulls, previews, path, owner, comments, statuses, locked } = yield* connected("silent")
      const sha = yield* repo.commit({ ...app, a: "1" }, { branch: "change" })
      const other = yield* repo.commit({ ...app, a: "2" }, { branch: "other" })
      pulls.set(7, { state: "open", merged: false, sha, from: owner })
      // Nobody may comment there.
      pulls.set(8, { state: "open", merged: false, sha: other, from: owner })
      locked.add(8)
      const byHand = yield* call("POST", `${path}/previews`, { body: { pullRequest: 99, commit: sha } })
      assert.strictEqual(byHand.status, 201)
      yield* eventually("all are there", previews, (all) => all.length === 3)
      // One comment, written anew as things go on.
      yield* eventually(
        "the pull request is told",
        Effect.sync(() => [...comments.values()]),
        ([one]) => one?.body.includes("https://") === true && !one.body.includes("not begun")
      )
      assert.deepStrictEqual(
        [...comments.values()].map(({ number }) => number),
        [7]
      )
      yield* eventually(
        "the other one's commit is told all the same",
        Effect.sync(() => statuses),
        (all) => all.some(({ commit }) => commit === other)
      )
      const status = statuses.find(({ commit }) => commit === sha)
      assert.deepInclude(status, { commit: sha, context: "svc/preview", state: "pending" })
      pulls.set(7, { state: "closed", merged: false, sha, from: owner })
      pulls.set(8, { state: "closed", merged: false, sha: other, from: owner })
      yield* eventually("they are gone", previews, (all) => all.length === 1)
      assert.strictEqual((yield* previews)[0].pullRequest, 99)

      // More of strangers than there are places for, and one's own after them.
      for (let number = 101; number <= 101 + mostForks; number++)
        pulls.set(number, { state: "open", merged: false, sha, from: "stranger" })
      pulls.set(8, { state: "open", merged: false, sha, from: owner })
      const forksOf = (some: ReadonlyArray<{ readonly fork: boolean }>) =>
        some.filter(({ fork }) => fork).length
      // They are made one after the other.
      const all = yield* eventually(
        "its own is there, and as many of strangers as may be",
        previews,
        (some) =>
          some.some(({ pullRequest }: { pullRequest: number }) => pullRequest === 8) &&
          forksOf(some) >= mostForks
      )
      assert.strictEqual(forksOf(all), mostForks)
    })
  )
})
