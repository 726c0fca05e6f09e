import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { BranchList, BranchView } from "#src/branches/api.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connectionString } from "#test/setup/shown.ts"

const project = "/v1/orgs/main/projects/shop"

const query = (url: string, ca: string, text: string) =>
  Effect.promise(async () => {
    const sql = postgres(url.replace(/\?.*/, ""), {
      ssl: { ca, rejectUnauthorized: true },
      max: 1,
      connect_timeout: 60,
      fetch_types: false,
      onnotice: () => {}
    })
    try {
      return [...(await sql.unsafe(text))].map((row) => Object.values(row)[0])
    } catch (error) {
      return String(error)
    } finally {
      await sql.end({ timeout: 1 })
    }
  })

const branch = (name: string, values: object = {}) => ({
  name,
  environment: "staging",
  region: "local",
  sku: "db-n1",
  source: { kind: "current" },
  ...values
})

/** Once the engine has acted on the last change, and is content. */
const settled = (uid: string) =>
  Effect.flatMap(Plane, ({ call }) =>
    untilAnswer(
      call("GET", `/v1/orgs/main/resources/${uid}`),
      ({ body }) => body.phase === "ready" && body.observedGeneration === body.generation
    )
  )

/** A project with a database that holds three rows. */
const prepared = Effect.gen(function* () {
  const { call } = yield* Plane
  yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
  yield* call("POST", `${project}/environments`, { body: { slug: "staging" } })
  const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
  const made = yield* call("POST", `${project}/database`)
  assert.strictEqual(made.status, 201, made.text)
  const url = yield* connectionString(made, `${project}/database/rotate`)
  yield* query(url, ca, "create table ledger (n int); insert into ledger values (1), (2), (3)")
  const id: string = (yield* call("GET", `${project}/database`)).body.id
  return { ca, url, id, base: `${project}/databases/${id}/branches` }
})

layer(testPlane(), { excludeTestServices: true })("database branches", (it) => {
  it.effect(
    "are made, read, changed, promoted, and deleted, and real clients follow",
    () =>
      Effect.gen(function* () {
        const { call, session, sql } = yield* Plane
        const { ca, url, id, base } = yield* prepared
        const asOwner = (method: string, target: string, body?: object, headers = {}) =>
          call(method, target, { token: session, headers, ...(body === undefined ? {} : { body }) })
        const ready = (one: string) =>
          untilAnswer(call("GET", one), ({ body }) => body.connectionReady === true)

        assert.deepStrictEqual((yield* call("GET", base)).body, [])
        const made = yield* asOwner("POST", base, branch("copy"), { "idempotency-key": "once" })
        assert.strictEqual(made.status, 202, made.text)
        yield* fits(BranchView, made.body)
        const again = yield* asOwner("POST", base, branch("copy"), { "idempotency-key": "once" })
        assert.strictEqual(again.body.id, made.body.id)
        assert.deepStrictEqual(
          [
            made.body.sourceDatabaseId,
            made.body.databaseId,
            made.body.hydrationMode,
            made.body.connectionReady
          ],
          [id, null, "full_copy", false]
        )
        const expires = Date.parse(made.body.expiresAt) - Date.parse(made.body.createdAt)
        assert.approximately(expires, 7 * 86_400_000, 600_000)
        const one = `${base}/${made.body.id}`
        const seen: Array<[number, boolean, boolean]> = []
        const done = yield* untilAnswer(
          Effect.tap(call("GET", one), ({ body }) =>
            Effect.sync(() =>
              seen.push([body.hydrationProgressPercent, body.fullyHydrated, body.connectionReady])
            )
          ),
          ({ body }) => body.status === "ready" && body.connectionReady
        )
        yield* fits(BranchView, done.body)
        assert.match(done.headers.get("etag") ?? "", /^"\d+"$/)
        assert.isTrue(
          seen.every(([percent, full, connects]) => (full || percent < 100) && (full || !connects)),
          JSON.stringify(seen)
        )
        assert.deepStrictEqual(
          [done.body.progressPercent, done.body.hydrationProgressPercent, done.body.failure],
          [100, 100, null]
        )

        // It has a password of its own, shown by a rotation, and the database's opens nothing.
        const shown = yield* call("POST", `${one}/rotate`)
        assert.strictEqual(shown.status, 200, shown.text)
        const branchUrl: string = shown.body.connectionString
        assert.deepStrictEqual(yield* query(branchUrl, ca, "select n from ledger order by 1"), [1, 2, 3])
        const { port } = new URL(branchUrl)
        const borrowed = new URL(url)
        borrowed.port = port
        assert.match(String(yield* query(borrowed.href, ca, "select 1")), /password authentication failed/)
        // From here on they are apart.
        yield* query(branchUrl, ca, "insert into ledger values (100)")
        yield* query(url, ca, "insert into ledger values (4)")
        assert.deepStrictEqual(yield* query(url, ca, "select n from ledger order by 1"), [1, 2, 3, 4])

        const changed = yield* call("PATCH", one, {
          body: { expiresInDays: null, deleteOnPreviewClose: true }
        })
        assert.deepStrictEqual(
          [changed.status, changed.body.expiresAt, changed.body.deleteOnPreviewClose],
          [200, null, true]
        )
        const dated = yield* call("PATCH", one, { body: { expiresInDays: 3 } })
        assert.approximately(Date.parse(dated.body.expiresAt) - Date.now(), 3 * 86_400_000, 600_000)
        yield* fits(BranchList, (yield* call("GET", base)).body)

        // Nested ids are checked against each other.
        const elsewhere = `${project}/databases/${crypto.randomUUID()}/branches`
        assert.strictEqual((yield* call("GET", elsewhere)).status, 404)
        assert.strictEqual((yield* call("GET", `${elsewhere}/${made.body.id}`)).status, 404)
        assert.strictEqual((yield* call("GET", `${base}/${id}`)).status, 404)
        assert.strictEqual((yield* asOwner("POST", `${elsewhere}/${made.body.id}/promote`)).status, 404)

        yield* settled(made.body.id)
        yield* settled(id)
        // Promotion: the address and the password of the database stay, the data is the branch's.
        const promoted = yield* asOwner("POST", `${one}/promote`)
        assert.strictEqual(promoted.status, 202, promoted.text)
        const twice = yield* asOwner("POST", `${one}/promote`)
        assert.deepStrictEqual([twice.status, twice.body.code], [409, "already_promoted"])
        const over = yield* untilAnswer(call("GET", one), ({ body }) => body.status === "promoted")
        assert.deepStrictEqual(
          [over.body.databaseId, over.body.connectionReady, over.body.port],
          [id, false, null]
        )
        yield* settled(id)
        assert.deepStrictEqual(yield* query(url, ca, "select n from ledger order by 1"), [1, 2, 3, 100])
        // Its server is gone; the port may be another one's by now.
        assert.isString(yield* query(branchUrl, ca, "select 1"))
        // What was there is a branch for a week.
        const kept = (yield* call("GET", base)).body.find(
          (found: { source: { kind: string } }) => found.source.kind === "replaced"
        )
        assert.match(kept.name, /^main-before-/)
        const keptReady = yield* ready(`${base}/${kept.id}`)
        assert.approximately(
          Date.parse(keptReady.body.expiresAt) - Date.parse(keptReady.body.createdAt),
          7 * 86_400_000,
          600_000
        )
        const keptUrl = (yield* call("POST", `${base}/${kept.id}/rotate`)).body.connectionString
        assert.deepStrictEqual(yield* query(keptUrl, ca, "select n from ledger order by 1"), [1, 2, 3, 4])
        assert.strictEqual((yield* call("PATCH", one, { body: { expiresInDays: 1 } })).status, 422)
        assert.strictEqual((yield* call("POST", `${one}/rotate`)).body.code, "not_ready")

        // And back again.
        yield* settled(kept.id)
        assert.strictEqual((yield* asOwner("POST", `${base}/${kept.id}/promote`)).status, 202)
        yield* untilAnswer(call("GET", `${base}/${kept.id}`), ({ body }) => body.status === "promoted")
        yield* settled(id)
        assert.deepStrictEqual(yield* query(url, ca, "select n from ledger order by 1"), [1, 2, 3, 4])

        // Records of what is over go after a while; asked for, at once.
        assert.strictEqual((yield* asOwner("DELETE", one)).status, 200)
        yield* untilAnswer(call("GET", one), ({ status }) => status === 404)
        const audited = yield* sql(
          `select outcome from audit_log where operation = 'databaseBranches.promote' and outcome = 202`
        )
        assert.isAtLeast(audited.length, 2)
      }),
    600_000
  )

  it.effect(
    "refuse what cannot be",
    () =>
      Effect.gen(function* () {
        const { call, session, sql } = yield* Plane
        const { base } = yield* Effect.gen(function* () {
          const id: string = (yield* call("GET", `${project}/database`)).body.id
          return { base: `${project}/databases/${id}/branches` }
        })
        const post = (body: object, headers = {}) => call("POST", base, { token: session, body, headers })
        for (const [values, status, code] of [
          [{ environment: "nope" }, 404, "not_found"],
          [{ region: "moon" }, 404, "not_found"],
          [{ sku: "db-huge" }, 404, "not_found"],
          [{ previewId: crypto.randomUUID() }, 404, "not_found"],
          [{ environment: "preview" }, 422, "preview_data_forbidden"]
        ] as const) {
          const refused = yield* post(branch("bad", values))
          assert.deepStrictEqual([refused.status, refused.body.code], [status, code], JSON.stringify(values))
        }
        for (const [values, pointer] of [
          [{ name: "X" }, "/name"],
          [{ expiresInDays: 0 }, "/expiresInDays"],
          [{ expiresInDays: 1.5 }, "/expiresInDays"],
          [{ source: { kind: "point_in_time", pointInTime: "yesterday" } }, "/source/pointInTime"],
          [{ source: { kind: "backup" } }, "/source/backupId"],
          [{ source: { kind: "replaced" } }, "/source/kind"],
          [{ surprise: true }, "/surprise"]
        ] as const) {
          const refused = yield* post(branch("bad", values))
          assert.strictEqual(refused.status, 422, pointer)
          assert.include(JSON.stringify(refused.body.errors), pointer.split("/").at(-1) ?? "")
        }
        // It stays as it is made.
        const pauses = "/v1/orgs/main/pauses"
        const pause = { scope: "kind", target: "DatabaseBranch", reason: "looking" }
        assert.strictEqual((yield* call("POST", pauses, { body: pause })).status, 202)
        const made = yield* post(branch("taken", { expiresInDays: null }))
        assert.strictEqual(made.status, 202)
        const early = yield* call("POST", `${base}/${made.body.id}/promote`, { token: session })
        assert.deepStrictEqual([early.status, early.body.code], [409, "not_ready"])
        assert.strictEqual(
          (yield* call("PATCH", `${base}/${made.body.id}`, { body: { expiresInDays: -1 } })).status,
          422
        )
        yield* sql(`update organization set billing_status = 'past_due' where slug = 'main'`)
        assert.strictEqual(
          (yield* call("POST", `${base}/${made.body.id}/promote`, { token: session })).status,
          402
        )
        assert.strictEqual((yield* call("POST", `${base}/${made.body.id}/rotate`)).status, 402)
        yield* sql(`update organization set billing_status = 'active' where slug = 'main'`)

        assert.strictEqual((yield* call("DELETE", `${pauses}?scope=kind&target=DatabaseBranch`)).status, 202)

        // With the project's consent a preview may hold production data.
        const consent = yield* call("PATCH", project, { body: { previewData: "allowed" } })
        assert.strictEqual(consent.body.previewData, "allowed")
        assert.strictEqual((yield* post(branch("preview-copy", { environment: "preview" }))).status, 202)
        // Deletion cancels what is under way; what is just being moved for a promotion is refused, and tried again.
        const removed = Effect.gen(function* () {
          const left = yield* call("GET", base)
          for (const { id } of left.body) yield* call("DELETE", `${base}/${id}`, { token: session })
          return left
        })
        yield* untilAnswer(removed, ({ body }) => body.length === 0)
      }),
    600_000
  )

  it.effect(
    "come and go by manifest, and an export plans to nothing",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const exported = yield* call("GET", "/v1/orgs/main/manifest")
        const manifest = structuredClone(exported.body)
        manifest.projects[0].databaseBranch = { sourceEnvironment: "production", sourceDatabase: "main" }
        const forbidden = structuredClone(manifest)
        forbidden.projects[0].previewData = undefined
        const blocked = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: forbidden })
        assert.deepStrictEqual(
          blocked.body.blockers.map(({ pointer, code }: { pointer: string; code: string }) => ({
            pointer,
            code
          })),
          [{ pointer: "/projects/0/databaseBranch/sourceEnvironment", code: "preview_data_forbidden" }],
          blocked.text
        )
        const plan = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: manifest })
        assert.deepStrictEqual([plan.status, plan.body.blockers], [200, []], plan.text)
        const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
          body: { planId: plan.body.planId }
        })
        assert.strictEqual(applied.status, 202, applied.text)
        const id: string = (yield* call("GET", `${project}/database`)).body.id
        const found = yield* untilAnswer(
          call("GET", `${project}/databases/${id}/branches`),
          ({ body }) => body[0]?.connectionReady === true
        )
        assert.deepStrictEqual([found.body[0].name, found.body[0].environment], ["preview", "preview"])
        const now = yield* call("GET", "/v1/orgs/main/manifest")
        assert.deepStrictEqual(now.body.projects[0].databaseBranch, {
          sourceEnvironment: "production",
          sourceDatabase: "main",
          expiresInDays: 7,
          deleteOnPreviewClose: false
        })
        const replanned = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: now.body })
        assert.deepStrictEqual(
          replanned.body.changes.filter(({ action }: { action: string }) => action !== "noop"),
          [],
          replanned.text
        )
      }),
    600_000
  )
})
