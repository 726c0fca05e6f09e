import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { person } from "#test/setup/people.ts"
import { processesNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"

const base = "/v1/orgs"
/** What a process that is dead and only not read yet does not have is a command line. */
const serversNaming = (uid: string) => processesNaming(uid).map(({ line }) => line)

layer(testPlane(), { excludeTestServices: true })("organizations", (it) => {
  it.effect("somebody makes one, owns it, finds it by id and slug, and renames it", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { token } = yield* person()
      assert.deepStrictEqual((yield* call("GET", base, { token })).body, [])
      const made = yield* call("POST", base, { token, body: { name: "Acme", slug: "acme" } })
      assert.strictEqual(made.status, 201)
      const { id, createdAt, ...rest } = made.body
      assert.match(createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
      assert.deepStrictEqual(rest, {
        name: "Acme",
        slug: "acme",
        isPersonal: false,
        billingStatus: "active"
      })
      const listed = yield* call("GET", base, { token })
      assert.deepStrictEqual(listed.body, [made.body])
      const members = yield* call("GET", `${base}/acme/members`, { token })
      assert.deepStrictEqual(
        members.body.map((one: { role: string }) => one.role),
        ["owner"]
      )
      const bySlug = yield* call("GET", `${base}/acme`, { token })
      assert.deepStrictEqual([bySlug.status, bySlug.body], [200, made.body])
      assert.deepStrictEqual((yield* call("GET", `${base}/${id}`, { token })).body, made.body)

      const etag = bySlug.headers.get("etag") ?? ""
      const renamed = yield* call("PATCH", `${base}/acme`, {
        token,
        body: { name: "Acme Inc", slug: "acme-inc" },
        headers: { "if-match": etag }
      })
      assert.deepStrictEqual(
        [renamed.status, renamed.body.name, renamed.body.slug],
        [200, "Acme Inc", "acme-inc"]
      )
      const stale = yield* call("PATCH", `${base}/acme-inc`, {
        token,
        body: { name: "Late" },
        headers: { "if-match": etag }
      })
      assert.strictEqual(stale.status, 412)
      assert.strictEqual((yield* call("GET", `${base}/acme`, { token })).status, 404)
      assert.strictEqual((yield* call("PATCH", `${base}/acme-inc`, { token, body: {} })).status, 200)
      // A repeated creation is answered the same although no organization is addressed.
      const once = { token, body: { name: "Once", slug: "once" }, headers: { "idempotency-key": "k1" } }
      const [first, again] = [yield* call("POST", base, once), yield* call("POST", base, once)]
      assert.deepStrictEqual([first.status, again.text], [201, first.text])
      assert.strictEqual(again.headers.get("idempotency-replayed"), "true")
    })
  )

  it.effect(
    "a slug belongs to one organization, stays reserved when it is given up, and is free after deletion",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const [one, two] = [yield* person(), yield* person()]
        const make = (token: string, slug: string) =>
          Effect.map(call("POST", base, { token, body: { name: "N", slug } }), (answer) => [
            answer.status,
            answer.body.code
          ])
        assert.deepStrictEqual(yield* make(one.token, "wanted"), [201, undefined])
        assert.deepStrictEqual(yield* make(two.token, "wanted"), [409, "slug_taken"])
        assert.deepStrictEqual(yield* make(two.token, "other"), [201, undefined])
        const taken = yield* call("PATCH", `${base}/other`, { token: two.token, body: { slug: "wanted" } })
        assert.deepStrictEqual([taken.status, taken.body.code], [409, "slug_taken"])
        yield* call("PATCH", `${base}/wanted`, { token: one.token, body: { slug: "moved" } })
        assert.deepStrictEqual(yield* make(two.token, "wanted"), [409, "slug_taken"])
        // Its own organization may come back to it.
        const back = yield* call("PATCH", `${base}/moved`, { token: one.token, body: { slug: "wanted" } })
        assert.strictEqual(back.status, 200)
        assert.strictEqual((yield* call("DELETE", `${base}/wanted`, { token: one.token })).status, 200)
        assert.deepStrictEqual(yield* make(two.token, "wanted"), [201, undefined])
        assert.deepStrictEqual(yield* make(two.token, "moved"), [201, undefined])
        // Of many who want one at once, one gets it.
        const rush = yield* Effect.forEach(
          Array.from({ length: 12 }, (_, i) => (i % 2 === 0 ? one : two)),
          ({ token }) => make(token, "rush"),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(rush.filter(([status]) => status === 201).length, 1)
        assert.isTrue(rush.every(([status]) => status === 201 || status === 409))
      })
  )

  it.effect("renaming again and again does not collect slugs", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { token } = yield* person()
      const made = yield* call("POST", base, { token, body: { name: "N", slug: "hoard-0" } })
      for (let i = 1; i <= 9; i++) {
        yield* call("PATCH", `${base}/${made.body.id}`, { token, body: { slug: `hoard-${i}` } })
      }
      const kept = yield* sql(
        `select slug from organization_slug where org_id = '${made.body.id}' order by slug`
      )
      assert.deepStrictEqual(
        kept.map(({ slug }) => slug),
        ["hoard-4", "hoard-5", "hoard-6", "hoard-7", "hoard-8", "hoard-9"]
      )
    })
  )

  it.effect(
    "nobody takes every slug: a person belongs to a hundred organizations at most when making one",
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const { token, userId } = yield* person()
        yield* sql(`
        with made as (
          insert into organization (id, name, slug, billing_status)
          select gen_random_uuid(), 'N', 'many-' || i, 'active' from generate_series(1, 99) i returning id
        )
        insert into member (org_id, id, user_id, role) select id, gen_random_uuid(), '${userId}', 'owner' from made`)
        const make = (slug: string) => call("POST", base, { token, body: { name: "N", slug } })
        assert.strictEqual((yield* make("the-hundredth")).status, 201)
        const refused = yield* make("one-more")
        assert.deepStrictEqual([refused.status, refused.body.code], [409, "too_many_organizations"])
      })
  )

  it.effect("names and slugs that cannot be are refused, each fault by its place", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { token } = yield* person()
      const pointers = (method: string, path: string, body: unknown) =>
        Effect.map(call(method, path, { token, body }), (answer) => [
          answer.status,
          ...answer.body.errors.map((error: { pointer: string }) => error.pointer).sort()
        ])
      yield* call("POST", base, { token, body: { name: "Fine", slug: "fine" } })
      for (const [method, path] of [
        ["POST", base],
        ["PATCH", `${base}/fine`]
      ] as const) {
        for (const slug of [
          "a",
          "Über",
          "1a",
          "-a",
          "a".repeat(40),
          "admin",
          "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
        ])
          assert.deepStrictEqual(yield* pointers(method, path, { name: "N", slug }), [422, "/slug"], slug)
        for (const name of ["", "x".repeat(101), "a\nb", "a\0"])
          assert.deepStrictEqual(yield* pointers(method, path, { name, slug: "ok-ok" }), [422, "/name"], name)
        assert.deepStrictEqual(yield* pointers(method, path, { name: "", slug: "", more: 1 }), [
          422,
          "/more",
          "/name",
          "/slug"
        ])
      }
      assert.deepStrictEqual(yield* pointers("POST", base, {}), [422, "/name", "/slug"])
    })
  )

  it.effect("deletion needs the owner, no protection, and no personal organization", () =>
    Effect.gen(function* () {
      const { call, session, tenant, sql } = yield* Plane
      const personal = yield* call("DELETE", `${base}/main`, { token: session })
      assert.deepStrictEqual([personal.status, personal.body.code], [422, "personal_organization"])
      const mine = yield* tenant()
      for (const token of [mine.member, mine.admin, mine.adminKey])
        assert.strictEqual((yield* call("DELETE", `${base}/${mine.slug}`, { token })).status, 403)
      const at = { token: mine.owner }
      yield* call("POST", `${base}/${mine.slug}/projects`, { ...at, body: { name: "P", slug: "kept" } })
      yield* sql(`update resource set protected = true where org_id = '${mine.id}' and kind = 'Project'`)
      const guarded = yield* call("DELETE", `${base}/${mine.slug}`, at)
      assert.deepStrictEqual([guarded.status, guarded.body.code], [409, "protected"])
      assert.include(guarded.body.detail, "kept")
      yield* sql(`update resource set protected = false where org_id = '${mine.id}'`)
      const stale = yield* call("DELETE", `${base}/${mine.slug}`, { ...at, headers: { "if-match": '"999"' } })
      assert.strictEqual(stale.status, 412)
      assert.strictEqual((yield* call("DELETE", `${base}/${mine.slug}`, at)).status, 200)
      assert.strictEqual((yield* call("DELETE", `${base}/${mine.slug}`, at)).status, 404)
    })
  )

  it.effect(
    "a deleted organization is there for nobody at once, and everything in it goes, servers too",
    () =>
      Effect.gen(function* () {
        const { call, tenant, sql } = yield* Plane
        const mine = yield* tenant()
        const other = yield* tenant()
        const path = `${base}/${mine.slug}`
        const at = { token: mine.owner }
        yield* call("POST", `${path}/projects`, { ...at, body: { name: "P", slug: "shop" } })
        const cache = yield* call("POST", `${path}/projects/shop/caches`, {
          ...at,
          body: { name: "one", sku: "cache-n1", region: "local" }
        })
        assert.isString(cache.body.id)
        const servers = Effect.sync(() => serversNaming(cache.body.id))
        yield* eventually("its server runs", servers, (found) => found.length > 0)
        yield* call("PUT", `${path}/projects/shop/env`, { ...at, body: { vars: [{ key: "A", value: "1" }] } })
        yield* call("POST", `${path}/api-keys`, { ...at, body: { name: "k" } })
        yield* call("POST", `${path}/invitations`, {
          ...at,
          body: { email: "a@example.test", role: "member" }
        })
        // What is paused is removed all the same: nobody is left to resume it.
        yield* call("POST", `${path}/pauses`, { ...at, body: { scope: "organization", reason: "freeze" } })

        assert.strictEqual((yield* call("DELETE", path, at)).status, 200)
        for (const token of [mine.owner, mine.admin, mine.member]) {
          assert.strictEqual((yield* call("GET", path, { token })).status, 404)
          assert.deepStrictEqual((yield* call("GET", base, { token })).body, [])
          assert.deepStrictEqual((yield* call("GET", "/v1/me", { token })).body.organizations, [])
        }
        for (const token of [mine.adminKey, mine.memberKey])
          assert.strictEqual((yield* call("GET", path, { token })).status, 401)

        const left = sql(`select from organization where id = '${mine.id}'`)
        yield* eventually("the organization is gone", left, (rows) => rows.length === 0)
        const tables = yield* sql(`
        select table_name as name from information_schema.columns
        where table_schema = 'public' and column_name = 'org_id' and table_name <> 'audit_log'`)
        assert.isAbove(tables.length, 10)
        for (const { name } of tables) {
          const [left] = yield* sql(`select count(*)::int as n from "${name}" where org_id = '${mine.id}'`)
          assert.strictEqual(left?.["n"], 0, String(name))
        }
        // Not by its port, which may be somebody else's by now.
        assert.deepStrictEqual(serversNaming(cache.body.id), [])
        const audited = yield* sql(`select operation from audit_log where org_id = '${mine.id}'`)
        assert.include(
          audited.map(({ operation }) => operation),
          "orgs.delete"
        )
        assert.strictEqual((yield* call("GET", `${base}/${other.slug}`, { token: other.owner })).status, 200)
      })
  )

  it.effect("what a request adds while its organization is deleted goes as well", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const tenants = yield* Effect.forEach(Array.from({ length: 6 }), () => tenant())
      const answers = yield* Effect.forEach(
        tenants,
        ({ slug, owner, admin }) => {
          const project = (i: number) =>
            call("POST", `${base}/${slug}/projects`, { token: admin, body: { name: "P", slug: `p-${i}` } })
          return Effect.all(
            [
              project(1),
              project(2),
              project(3),
              call("DELETE", `${base}/${slug}`, { token: owner }),
              call("POST", `${base}/${slug}/api-keys`, { token: admin, body: { name: "k" } }),
              project(4),
              project(5)
            ],
            { concurrency: "unbounded" }
          )
        },
        { concurrency: 2 }
      )
      const deletions = answers.flat().filter(({ body }) => body.ok === true)
      assert.strictEqual(deletions.length, tenants.length)
      const ids = tenants.map(({ id }) => `'${id}'`).join()
      const left = sql(`select o.slug, o.deletion_requested_at, r.kind, r.name, r.phase, r.conditions, w.*
        from organization o left join resource r on r.org_id = o.id and r.deleted_at is null
        left join work w on w.uid = r.uid where o.id in (${ids})`)
      yield* eventually("all are gone", left, (rows) => rows.length === 0)
      for (const table of ["resource", "api_key", "work"])
        assert.deepStrictEqual(yield* sql(`select org_id from ${table} where org_id in (${ids})`), [], table)
    })
  )
})

layer(testPlane({ billing: "required" }), { excludeTestServices: true })("billing", (it) => {
  it.effect("a new organization is unpaid where billing is required, and pays before it makes anything", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { token } = yield* person()
      const made = yield* call("POST", base, { token, body: { name: "New", slug: "new-one" } })
      assert.strictEqual(made.body.billingStatus, "unpaid")
      const create = Effect.map(
        call("POST", `${base}/new-one/projects`, { token, body: { name: "P", slug: "one" } }),
        ({ status, body }) => [status, body.code]
      )
      assert.deepStrictEqual(yield* create, [402, "billing_inactive"])
      for (const status of ["past_due", "canceled"]) {
        yield* sql(`update organization set billing_status = '${status}' where slug = 'new-one'`)
        assert.deepStrictEqual(yield* create, [402, "billing_inactive"], status)
      }
      // What costs nothing goes on.
      assert.strictEqual(
        (yield* call("POST", `${base}/new-one/api-keys`, { token, body: { name: "k" } })).status,
        201
      )
      yield* sql(`update organization set billing_status = 'active' where slug = 'new-one'`)
      assert.deepStrictEqual(yield* create, [201, undefined])
    })
  )
})
