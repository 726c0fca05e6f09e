/** Previews of pull requests: what they make, what a fork's get, and what goes with them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const projects = "/v1/orgs/main/projects"
const shop = `${projects}/shop`
const base = `${shop}/previews`
const commits = { first: "1".repeat(40), second: "2".repeat(40) }

const slugs = ({ body }: Answer) => body.map(({ slug }: { slug: string }) => slug)
const look = (path: string) => Effect.flatMap(Plane, ({ call }) => call("GET", path))
const opened = Effect.fnUntraced(function* (body: object) {
  const { call } = yield* Plane
  const made = yield* call("POST", base, { body: { commit: commits.first, ...body } })
  assert.strictEqual(made.status, 201, made.text)
  const one = `${base}/${made.body.id}`
  yield* eventually(
    "it is open",
    call("GET", one),
    ({ body }) => body.status === "open" && body.address !== null
  )
  return { one, id: String(made.body.id) }
})
/** Nobody waits for it: no server can be started here. */
const withDatabase = Effect.fnUntraced(function* (more: object) {
  const { call } = yield* Plane
  const { body } = yield* call("GET", "/v1/orgs/main/manifest")
  const databases = [{ name: "main", sku: "db-n1", region: "local" }]
  const manifest = { ...body, projects: [{ ...body.projects[0], databases, ...more }] }
  const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", { body: { manifest } })
  assert.strictEqual(applied.status, 202, applied.text)
  return (yield* call("GET", `${shop}/database`)).body
})
const gone = (path: string) => eventually(`${path} is gone`, look(path), ({ status }) => status === 404)

layer(testPlane({ containerSocket: "none" }), { excludeTestServices: true })("previews", (it) => {
  it.effect("have an environment of their own, which comes and goes with them and by no other way", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
      yield* call("PUT", `${shop}/access`, { body: { mode: "public", previewMode: "organization" } })
      const { one } = yield* opened({ pullRequest: 12, title: "A new cart" })
      const preview = (yield* call("GET", one)).body
      assert.deepInclude(preview, { environment: "preview-12", trusted: true, branchId: null, problem: null })
      assert.isAbove(Date.parse(preview.expiresAt), Date.now() + 13 * 86_400_000)
      assert.include(slugs(yield* call("GET", `${shop}/environments`)), "preview-12")
      const access = yield* call("GET", `${shop}/access`)
      assert.deepInclude(access.body.effective, { production: "public", "preview-12": "organization" })

      const twice = yield* call("POST", base, { body: { pullRequest: 12, commit: commits.second } })
      assert.deepStrictEqual([twice.status, twice.body.code], [409, "name_taken"])
      const named = yield* call("POST", `${shop}/environments`, { body: { slug: "preview-13" } })
      assert.deepStrictEqual([named.status, named.body.errors[0].pointer], [422, "/slug"])
      const kept = yield* call("DELETE", `${shop}/environments/preview-12`, { token: session })
      assert.deepStrictEqual([kept.status, kept.body.code], [409, "preview_environment"])
      const domain = yield* call("POST", `${shop}/domains`, {
        body: { hostname: "www.example.com", environment: "preview-12" }
      })
      assert.strictEqual(domain.status, 422, domain.text)

      // No manifest tells of it, so none takes it away.
      const { body: exported } = yield* call("GET", "/v1/orgs/main/manifest")
      assert.notInclude(JSON.stringify(exported), "preview-12")
      const body = { ...exported, projects: [{ ...exported.projects[0], environments: {} }] }
      const plan = yield* call("POST", "/v1/orgs/main/manifest/plan?prune=true", { body })
      assert.deepStrictEqual(
        plan.body.changes.filter(({ action }: { action: string }) => action !== "noop"),
        [],
        plan.text
      )
      const declared = { ...body, projects: [{ ...body.projects[0], environments: { "preview-14": {} } }] }
      const refused = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: declared })
      assert.deepInclude(refused.body.blockers[0], {
        pointer: "/projects/0/environments/preview-14",
        code: "preview_environment"
      })

      yield* call("POST", `${shop}/caches?environment=preview-12`, {
        body: { name: "fast", sku: "cache-n1" }
      })
      assert.strictEqual((yield* call("DELETE", one)).status, 200)
      yield* gone(one)
      assert.notInclude(slugs(yield* call("GET", `${shop}/environments`)), "preview-12")
      assert.deepStrictEqual((yield* call("GET", `${shop}/caches`)).body, [])
      // The pull request may be opened again.
      const again = yield* opened({ pullRequest: 12 })
      assert.strictEqual((yield* call("DELETE", again.one)).status, 200)
      yield* gone(again.one)
    })
  )

  it.effect("of forks get data for an approved commit only, and lose it with the next one", () =>
    Effect.gen(function* () {
      const { call, session, tenant } = yield* Plane
      yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
      const production = { sourceEnvironment: "production", sourceDatabase: "main" }
      const forbidden = yield* call("POST", base, {
        body: { pullRequest: 20, commit: commits.first, database: production }
      })
      assert.deepStrictEqual([forbidden.status, forbidden.body.code], [422, "preview_data_forbidden"])
      const source = yield* withDatabase({ previewData: "allowed" })
      const { one, id } = yield* opened({ pullRequest: 20, fork: true, database: production })
      const branches = `${shop}/databases/${source.id}/branches`
      const theirs = Effect.map(call("GET", branches), ({ body }) =>
        body.filter(({ environment }: { environment: string }) => environment === "preview-20")
      )
      const preview = (yield* call("GET", one)).body
      assert.deepStrictEqual([preview.trusted, preview.branchId], [false, null])
      assert.include(preview.problem, "approved")
      assert.deepStrictEqual(yield* theirs, [])
      const branch = {
        ...{ name: "own", environment: "preview-20", region: "local", sku: "db-n1" },
        ...{ source: { kind: "current" }, previewId: id }
      }
      const early = yield* call("POST", branches, { token: session, body: branch })
      assert.deepStrictEqual([early.status, early.body.code], [422, "preview_not_approved"])

      const other = yield* tenant()
      const stranger = yield* call("POST", `${one}/approve`, {
        token: other.adminKey,
        body: { commit: commits.first }
      })
      assert.strictEqual(stranger.status, 404)
      const moved = yield* call("POST", `${one}/approve`, { body: { commit: commits.second } })
      assert.deepStrictEqual([moved.status, moved.body.code], [409, "commit_moved"])
      const approved = yield* call("POST", `${one}/approve`, { body: { commit: commits.first } })
      assert.deepStrictEqual([approved.status, approved.body.trusted], [200, true], approved.text)
      yield* eventually("it has a copy", theirs, (found) => found.length === 1)

      yield* call("PATCH", one, { body: { commit: commits.second } })
      const untrusted = (yield* call("GET", one)).body
      assert.deepStrictEqual([untrusted.trusted, untrusted.approvedCommit], [false, commits.first])
      yield* eventually("the copy is taken away", theirs, (found) => found.length === 0)
      const own = yield* opened({ pullRequest: 21, database: null })
      const needless = yield* call("POST", `${own.one}/approve`, { body: { commit: commits.first } })
      assert.strictEqual(needless.status, 422)
      for (const path of [one, own.one]) yield* call("DELETE", path)
      for (const path of [one, own.one]) yield* gone(path)
    })
  )

  it.effect(
    "have a copy as the project's databaseBranch says, and take branches made for them with them",
    () =>
      Effect.gen(function* () {
        const { call, session } = yield* Plane
        yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
        const databaseBranch = { sourceEnvironment: "production", sourceDatabase: "main" }
        const source = yield* withDatabase({ previewData: "allowed", databaseBranch })
        const branches = `${shop}/databases/${source.id}/branches`
        const environments = Effect.map(call("GET", branches), ({ body }) =>
          body.map(({ environment, name }: { environment: string; name: string }) => `${environment}/${name}`)
        )
        const { one, id } = yield* opened({ pullRequest: 30 })
        yield* eventually("it has a copy", environments, (all) => all.includes("preview-30/preview"))

        const body = {
          ...{ name: "kept", environment: "preview", region: "local", sku: "db-n1", previewId: id },
          source: { kind: "current" }
        }
        const ask = (more: object) => call("POST", branches, { token: session, body: { ...body, ...more } })
        assert.strictEqual((yield* ask({})).status, 202)
        assert.strictEqual((yield* ask({ name: "bound", deleteOnPreviewClose: true })).status, 202)
        const elsewhere = yield* ask({ name: "other", environment: "production" })
        assert.deepStrictEqual([elsewhere.status, elsewhere.body.errors[0].pointer], [422, "/environment"])
        for (const previewId of [crypto.randomUUID(), source.id, "nonsense"])
          assert.strictEqual((yield* ask({ name: "other", previewId })).status, 404, previewId)

        assert.strictEqual((yield* call("DELETE", one)).status, 200)
        const late = yield* ask({ name: "late" })
        assert.include([404, 409], late.status)
        yield* gone(one)
        // That of the manifest is listed once its source was found; nobody made it for the preview.
        assert.deepStrictEqual(
          (yield* environments).filter((name: string) => name !== "preview/preview"),
          ["preview/kept"]
        )
      })
  )

  it.effect("are closed when their time is over", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
      const { one, id } = yield* opened({ pullRequest: 40, database: null, expiresInDays: 1 })
      const longer = yield* call("PATCH", one, { body: { expiresInDays: null } })
      assert.strictEqual(longer.body.expiresAt, null)
      yield* call("PATCH", one, { body: { expiresInDays: 1 } })
      const past = `'"2026-01-01T00:00:00.000Z"'`
      yield* sql(`update resource set spec = jsonb_set(spec, '{expiresAt}', ${past}) where uid = '${id}'`)
      yield* call("POST", `/v1/orgs/main/resources/${id}/retry`)
      yield* gone(one)
      assert.notInclude(slugs(yield* call("GET", `${shop}/environments`)), "preview-40")
    })
  )
})
