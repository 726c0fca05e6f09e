/** What pull requests show of what merging them makes a git source do, and that exactly that is done, or nothing. */
import { createHash } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { GitSource, type GitSourceInput, GitSourceStatus } from "#schemas/git-source.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { Reviews } from "#src/git-sources/Reviews.ts"
import { Manifests } from "#src/manifest/Manifests.ts"
import { followServices, followWorld } from "#test/previews/world.ts"
import { actor, makeProject, uuid } from "#test/setup/fixtures.ts"
import { project } from "./world.ts"

const forge = "https://forge.test"
const decode = Schema.decodeUnknownSync(GitSource.spec)
const decodeStatus = Schema.decodeUnknownSync(GitSourceStatus)
let fence = 0n

/** A source that is kept from the repository of a project, made by an admin. */
const reviewWorld = Effect.fnUntraced(function* (values: Partial<(typeof GitSourceInput)["Type"]> = {}) {
  const world = yield* followWorld
  const { sql, resources, orgId, slug, owner, repo, manifests, refs } = world
  const [connection, user, uid] = [uuid(), uuid(), uuid()]
  world.connectionIds.set(owner, connection)
  world.connect(forge)
  yield* world.setRepo(repo)
  yield* sql`insert into account (id, email, name) values (${user}, ${`${slug}@example.test`}, 'Ada')`
  yield* sql`insert into member (org_id, id, user_id, role) values (${orgId}, ${uuid()}, ${user}, 'admin')`
  const url = `${forge}/${repo}.git`
  const spec = decode({ url, connection, principal: `user:${user}`, reviewed: true, ...values })
  const base = { kind: "GitSource", projectId: null, environment: null, name: "platform", parentUid: null }
  yield* resources.write(orgId, [{ action: "create", uid, ...base, spec, managedBy: "api" }], actor)

  const textOf = (...projects: ReadonlyArray<object>) =>
    JSON.stringify({ version: 1, organization: slug, ...(projects.length > 0 && { projects }) })
  /** A commit with this manifest; commits of the same one differ by their words. */
  const commit = (text: string, words = "") => {
    const id = createHash("sha1").update(`${slug}${words}${text}`).digest("hex")
    manifests.set(id, text)
    return id
  }
  const main = (text: string, words = "merge") => void refs.set(`${url} main`, commit(text, words))
  /** A look of the source, as the engine has it done when somebody asks for one. */
  const looked = Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("GitSource") ?? assert.fail("no reconciler")
    yield* (yield* GitSources).ask({ orgId, uid })
    const resource = {
      ...{ orgId, uid, ...base, spec, generation: 1, status: null, facts: {}, deleting: false },
      fence: ++fence
    }
    for (let steps = 0; steps < 5; steps++) {
      const seen = yield* reconciler.observe(resource)
      if (seen._tag === "Present" && seen.differences.length + (seen.maintenance ?? []).length === 0)
        return decodeStatus(seen.status)
      yield* reconciler.converge(resource, seen)
    }
    return assert.fail("it does not settle")
  })
  const projects = Effect.map(resources.listKind(orgId, "Project", null), (all) =>
    all.map(({ name }) => name).sort()
  )
  const shown = (number: number) => world.comments.get(`${forge}/${repo}#${number}`) ?? ""
  const marks = (commit: string) =>
    world.statuses.filter((status) => status.commit === commit && status.context === "svc/plan")
  const open = (number: number, text: string, more: object = {}) => {
    const head = commit(text, `head ${number}`)
    world.say(forge, repo, number, head, "open", more)
    return head
  }
  const merge = (number: number, head: string) => world.say(forge, repo, number, head, "merged")
  const rows = sql<{ readonly digest: string | null; readonly all: string }>`
    select digest, r::text as all from git_source_review r where source_uid = ${uid}::uuid`
  main(textOf(), "first")
  assert.isNull((yield* looked).fault)
  return { ...world, uid, user, textOf, commit, main, looked, projects, shown, marks, open, merge, rows }
})

const blog = project("blog")

layer(followServices, { excludeTestServices: true })("the plan of a pull request", (it) => {
  it.effect("is applied when it is merged, as it was shown, and once", () =>
    Effect.gen(function* () {
      const {
        textOf,
        open,
        look,
        shown,
        marks,
        merge,
        main,
        looked,
        projects,
        rows,
        statuses,
        sql,
        orgId,
        resources
      } = yield* reviewWorld()
      const head = open(5, textOf(blog))
      yield* look
      assert.include(shown(5), "Create:\n\n- `Project/blog`")
      assert.include(shown(5), "**Preview:**")
      assert.include(shown(5), "Merging into `main` applies exactly this, or nothing.")
      assert.deepInclude(marks(head)[0], { state: "success" })
      assert.match(marks(head)[0]?.description ?? "", /^1 to create/)
      assert.deepStrictEqual(yield* projects, ["shop"])
      assert.isEmpty(yield* sql`select from plan where org_id = ${orgId}::uuid`)
      // However often it is looked at.
      const before = [shown(5), statuses.length, yield* rows]
      yield* look
      assert.deepStrictEqual([shown(5), statuses.length, yield* rows], before)

      // The branch moves before anybody knows that the pull request is merged.
      main(textOf(blog))
      assert.strictEqual((yield* looked).fault?.code, "not_reviewed")
      assert.deepStrictEqual(yield* projects, ["shop"])
      merge(5, head)
      yield* look
      const done = yield* looked
      assert.isNull(done.fault)
      assert.strictEqual(done.applied?.planId, done.planned?.planId)
      assert.deepStrictEqual(yield* projects, ["blog", "shop"])
      yield* look
      assert.match(shown(5), /\*\*Plan\*\* of `platform`: applied at [0-9a-f]{12}\.$/)
      assert.deepInclude(marks(head).at(-1), { state: "success" })
      assert.isEmpty(yield* rows)

      // What was reviewed was that, and not the same once more.
      const there = (yield* resources.listKind(orgId, "Project", null)).find(({ name }) => name === "blog")
      yield* resources.write(
        orgId,
        [
          {
            action: "update",
            uid: there?.uid ?? "",
            spec: { name: "By hand", runtimeClass: "scale-to-zero" }
          }
        ],
        actor
      )
      yield* look
      const drifted = yield* looked
      assert.deepStrictEqual(
        [drifted.fault?.code, drifted.drift?.addresses],
        ["not_reviewed", ["Project/blog"]]
      )
    })
  )

  it.effect("is not applied when something else would be done than what was shown", () =>
    Effect.gen(function* () {
      const { textOf, open, look, shown, marks, merge, main, looked, projects, resources, orgId } =
        yield* reviewWorld()
      const head = open(6, textOf(blog))
      yield* look
      // What is merged is not what was at its head.
      main(textOf(project("blog", { name: "Another" }), project("guides")))
      merge(6, head)
      yield* look
      const held = yield* looked
      assert.strictEqual(held.fault?.code, "not_reviewed")
      assert.deepStrictEqual(yield* projects, ["shop"])
      yield* look
      assert.include(shown(6), "not applied")
      assert.match(shown(6), /changes otherwise: Project\/blog; changes besides: .*Project\/guides/)
      assert.include(shown(6), `svc apply --plan ${held.planned?.planId}`)
      assert.deepInclude(marks(head).at(-1), { state: "failure", description: "Not applied" })
      // Who may applies it as the source shows it.
      yield* (yield* Manifests).applyPlan(orgId, held.planned?.planId ?? "", "admin", actor, false)
      assert.isNull((yield* looked).fault)
      assert.deepStrictEqual(yield* projects, ["blog", "guides", "shop"])

      // What is there has changed since it was shown.
      const wanted = textOf(project("blog", { name: "Blog" }), project("guides"))
      const next = open(7, wanted)
      yield* look
      assert.include(shown(7), "`Project/blog`: `/name`")
      const there = (yield* resources.listKind(orgId, "Project", null)).find(({ name }) => name === "blog")
      const spec = { name: "By hand", runtimeClass: "scale-to-zero" }
      yield* resources.write(orgId, [{ action: "update", uid: there?.uid ?? "", spec }], actor)
      main(wanted)
      merge(7, next)
      yield* look
      assert.strictEqual((yield* looked).fault?.code, "not_reviewed")
      yield* look
      assert.include(shown(7), "changes otherwise: Project/blog")
    })
  )

  it.effect("is not applied when what it was merged into cannot be read", () =>
    Effect.gen(function* () {
      const { textOf, open, look, shown, merge, main, looked, projects, rows } = yield* reviewWorld()
      for (const [number, wrong] of [
        [8, "not yaml: ["],
        [9, textOf({ slug: "blog" })]
      ] as const) {
        const head = open(number, textOf(blog))
        yield* look
        main(wrong)
        merge(number, head)
        yield* look
        assert.strictEqual((yield* looked).fault?.code, "manifest_invalid")
        yield* look
        assert.match(shown(number), /not applied\. .*manifest/)
        assert.isEmpty(yield* rows)
      }
      assert.deepStrictEqual(yield* projects, ["shop"])
    })
  )

  it.effect("counts only where it was shown, and where its pull request was merged into that branch", () =>
    Effect.gen(function* () {
      const world = yield* reviewWorld()
      const { textOf, open, look, merge, main, looked, projects, rows, locked, repo, say } = world
      main(textOf(blog))
      const refused = Effect.gen(function* () {
        yield* look
        assert.strictEqual((yield* looked).fault?.code, "not_reviewed")
        yield* look
        assert.deepStrictEqual(yield* projects, ["shop"])
        assert.isEmpty(yield* rows)
      })
      // Pushed by somebody.
      yield* refused
      // Closed.
      const closed = open(1, textOf(blog))
      yield* look
      assert.lengthOf(yield* rows, 1)
      say(forge, repo, 1, closed, "closed")
      yield* refused
      // Nobody could read it.
      locked.add(`${forge}/${repo}#2`)
      const unread = open(2, textOf(blog))
      yield* look
      merge(2, unread)
      yield* refused
      // Into another branch, by now.
      open(3, textOf(blog))
      yield* look
      assert.lengthOf(yield* rows, 1)
      const elsewhere = open(3, textOf(blog), { base: { branch: "next" } })
      yield* look
      assert.isEmpty(yield* rows)
      say(forge, repo, 3, elsewhere, "merged", { base: { branch: "next" } })
      yield* refused
    })
  )

  it.effect("of a fork is made once its commit is approved, and that of nobody else's rights never", () =>
    Effect.gen(function* () {
      const { textOf, open, look, shown, marks, rows, sql, orgId, previews } = yield* reviewWorld()
      const head = open(8, textOf(blog), { isFork: true })
      yield* look
      assert.deepInclude(marks(head)[0], { state: "pending" })
      assert.notInclude(shown(8), "blog")
      assert.deepStrictEqual(
        (yield* rows).map(({ digest }) => digest),
        [null]
      )
      const [{ uid } = assert.fail("there is none")] = yield* previews
      yield* sql`
        update resource set spec = jsonb_set(spec, '{approvedCommit}', to_jsonb(${head}::text)) where uid = ${uid}::uuid`
      yield* look
      assert.include(shown(8), "`Project/blog`")
      assert.deepInclude(marks(head).at(-1), { state: "success" })

      yield* sql`update member set role = 'member' where org_id = ${orgId}::uuid`
      yield* look
      assert.deepInclude(marks(head).at(-1), { state: "failure" })
      assert.notInclude(shown(8), "`Project/blog`")
      assert.deepStrictEqual(
        (yield* rows).map(({ digest }) => digest),
        [null]
      )
    })
  )

  it.effect(
    "of a fork is made for a commit that was approved for the source, and gives its preview nothing",
    () =>
      Effect.gen(function* () {
        const { textOf, open, look, shown, marks, sql, orgId, uid, previews, repo, say } =
          yield* reviewWorld()
        const reviews = yield* Reviews
        const source = { orgId, uid, url: `${forge}/${repo}.git` }
        const head = open(13, textOf(blog), { isFork: true })
        yield* look
        const command = `svc git-sources approve platform 13 --commit ${head}`
        assert.include(shown(13), command)
        // Other approvals are of something else.
        yield* reviews.approve(source, { pullRequest: 14, commit: head }, actor)
        yield* reviews.approve(source, { pullRequest: 13, commit: "f".repeat(40) }, actor)
        yield* look
        assert.notInclude(shown(13), "`Project/blog`")

        yield* reviews.approve(source, { pullRequest: 13, commit: head }, actor)
        yield* look
        assert.include(shown(13), "`Project/blog`")
        assert.notInclude(shown(13), command)
        assert.deepInclude(marks(head).at(-1), { state: "success" })
        const [preview = assert.fail("there is none")] = yield* previews
        assert.deepInclude(preview, { fork: true, approvedCommit: null })
        const audited = yield* sql<{ readonly resource: string }>`
        select resource from audit_log where org_id = ${orgId}::uuid and starts_with(resource, ${uid}::text)`
        assert.deepStrictEqual(
          audited.map(({ resource }) => resource).filter((resource) => resource.endsWith(head)),
          [`${uid} #14 ${head}`, `${uid} #13 ${head}`]
        )

        const next = open(13, textOf(blog, project("guides")), { isFork: true })
        yield* look
        assert.notInclude(shown(13), "`Project/guides`")
        assert.deepInclude(marks(next).at(-1), { state: "pending" })
        say(forge, repo, 13, next, "closed")
      })
  )

  it.effect("names what it changes without values, in words that address nobody, and is bounded", () =>
    Effect.gen(function* () {
      const { textOf, open, look, shown, marks, rows, repo, say, sql, orgId } = yield* reviewWorld()
      const secret = { env: { TOKEN: "canary-value" } }
      const many = Array.from({ length: 120 }, (_, at) => project(`p-${at}`))
      const head = open(9, textOf(project("blog", secret), ...many))
      yield* sql`update organization set billing_status = 'past_due' where id = ${orgId}::uuid`
      yield* look
      assert.notInclude(shown(9) + JSON.stringify([marks(head), yield* rows]), "canary-value")
      assert.isAtMost(shown(9).length, 24_000)
      assert.match(shown(9), /- and \d+ more/)
      assert.include(shown(9), "active billing, which the organization does not have")

      const faulty = open(
        10,
        textOf({ slug: "x`@everybody <img src=1>", name: "canary", runtimeClass: "never" })
      )
      yield* look
      assert.deepInclude(marks(faulty)[0], { state: "failure" })
      assert.include(shown(10), "/projects/0/runtimeClass")
      assert.notMatch(shown(10).replaceAll(/`[^`\n]*`/g, ""), /@everybody|<img/)
      // Its commit cannot be read.
      say(forge, repo, 11, "f".repeat(40))
      yield* look
      assert.deepInclude(marks("f".repeat(40))[0], { state: "error" })
    })
  )

  it.effect("is told of by one look at a repository, and of a repository that is no project's as well", () =>
    Effect.gen(function* () {
      const world = yield* reviewWorld({ reviewed: false })
      const { textOf, open, look, lookAt, shown, merge, main, looked, projects, resources, orgId, sql } =
        world
      // A later project of the same repository.
      const { projectId: other } = yield* makeProject(orgId, "shop-two")
      const record = Option.getOrThrow(yield* resources.get(orgId, other))
      const spec = { name: "two", runtimeClass: "scale-to-zero", git: { repo: world.repo } }
      yield* resources.write(
        orgId,
        [{ action: "update", uid: other, spec, expectedGeneration: record.generation }],
        actor
      )
      const head = open(12, textOf(blog))
      yield* look
      assert.include(shown(12), "**Plan**")
      world.comments.clear()
      yield* lookAt(other)
      assert.include(shown(12), "**Preview:**")
      assert.notInclude(shown(12), "**Plan**")
      // What the branch says is applied, whoever has reviewed it; the pull request is told all the same.
      main(textOf(blog, project("guides")))
      assert.isNull((yield* looked).fault)
      assert.includeMembers([...(yield* projects)], ["blog", "guides"])
      merge(12, head)
      yield* look
      yield* sql`update git_source_review set merged_at = merged_at - interval '2 minutes'`
      yield* looked
      yield* look
      assert.match(shown(12), /applied at/)

      yield* world.setRepo(undefined)
      const two = Option.getOrThrow(yield* resources.get(orgId, other))
      yield* resources.write(
        orgId,
        [{ action: "delete", uid: other, expectedGeneration: two.generation }],
        actor
      )
      yield* sql`
        insert into git_connection (org_id, id, name, kind, url, owner, key_id, sealed)
        values (${orgId}::uuid, ${world.connectionIds.get(world.owner) ?? ""}::uuid, 'acme', 'gitea', ${forge},
          ${world.owner}, 'none', '')`
      open(13, textOf(blog, project("guides"), project("more")))
      yield* lookAt(world.uid)
      assert.include(shown(13), "`Project/more`")
      assert.notInclude(shown(13), "**Preview:**")
    })
  )
})
