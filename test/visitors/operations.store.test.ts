import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

layer(testPlane(), { excludeTestServices: true })("access operations", (it) => {
  /** A tenant with a project whose environments have sites. */
  const place = Effect.gen(function* () {
    const { call, tenant } = yield* Plane
    const mine = yield* tenant()
    const path = `/v1/orgs/${mine.slug}/projects`
    const made = yield* call("POST", path, { token: mine.owner, body: { name: "Shop", slug: "shop" } })
    assert.strictEqual(made.status, 201, made.text)
    return { mine, shop: `${path}/shop`, base: `${path}/shop/access` }
  })
  const modes = ({ id }: Tenant) =>
    Effect.flatMap(Plane, ({ sql }) =>
      Effect.map(
        sql(`select e.name, s.access from edge_site s join resource e on e.org_id = s.org_id
          and e.uid = s.environment_uid where s.org_id = '${id}' order by e.name`),
        (rows) => Object.fromEntries(rows.map(({ name, access }) => [name, access]))
      )
    )
  const untilModes = (mine: Tenant, expected: Readonly<Record<string, string>>) =>
    eventually(
      "the sites have their modes",
      Effect.map(modes(mine), (found) => JSON.stringify(found) === JSON.stringify(expected))
    )

  it.effect("a policy is said, put in force, changed and taken back", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { mine, base } = yield* place
      const token = mine.adminKey
      const before = yield* call("GET", base, { token })
      const open = { production: "public", preview: "public" }
      assert.deepStrictEqual(before.body, {
        mode: "public",
        previewMode: "inherit",
        environments: {},
        effective: open,
        status: null,
        managedBy: null
      })
      assert.isNull(before.headers.get("etag"))
      assert.strictEqual((yield* call("DELETE", base, { token })).status, 404)

      const set = yield* call("PUT", base, { token, body: { previewMode: "organization" } })
      assert.strictEqual(set.status, 200, set.text)
      assert.deepStrictEqual(set.body.effective, { production: "public", preview: "organization" })
      assert.strictEqual(set.body.managedBy, "api")
      yield* untilModes(mine, { preview: "organization", production: "public" })
      yield* eventually(
        "the policy is in force",
        Effect.map(call("GET", base, { token }), ({ body }) => body.status === "ready")
      )

      const stale = yield* call("PUT", base, { token, body: {}, headers: { "if-match": '"1-1"' } })
      assert.strictEqual(stale.status, 412)
      const { headers } = yield* call("GET", base, { token })
      const body = { mode: "authenticated", environments: { production: "invite_only" } }
      const changed = yield* call("PUT", base, {
        token,
        body,
        headers: { "if-match": headers.get("etag") ?? "" }
      })
      assert.deepStrictEqual(changed.body.effective, {
        production: "invite_only",
        preview: "authenticated"
      })
      // What was in force is not what is said now.
      assert.strictEqual(changed.body.status, "provisioning")
      yield* untilModes(mine, { preview: "authenticated", production: "invite_only" })

      assert.deepStrictEqual((yield* call("DELETE", base, { token })).body, { ok: true })
      assert.strictEqual((yield* call("GET", base, { token })).body.status, null)
      yield* untilModes(mine, { preview: "public", production: "public" })
    })
  )

  it.effect("an environment that comes later is protected from its first moment", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { mine, shop, base } = yield* place
      const token = mine.owner
      yield* call("PUT", base, { token, body: { mode: "organization" } })
      // Whoever reads what is written to the table sees no other mode.
      for (const statement of [
        "create table seen_mode (environment_uid uuid, access text)",
        "grant insert on seen_mode to public",
        `create function see_mode() returns trigger language plpgsql as $$
          begin insert into public.seen_mode values (new.environment_uid, new.access); return null; end $$`,
        `create trigger see_mode after insert or update on edge_site
          for each row execute function see_mode()`
      ])
        yield* sql(statement)
      const made = yield* call("POST", `${shop}/environments`, { token, body: { slug: "staging" } })
      yield* untilModes(mine, {
        preview: "organization",
        production: "organization",
        staging: "organization"
      })
      const seen = yield* sql(
        `select distinct access from seen_mode where environment_uid = '${made.body.id}'`
      )
      assert.deepStrictEqual(seen, [{ access: "organization" }])
    })
  )

  it.effect("addresses are invited, listed and taken back, by admins", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { mine, base } = yield* place
      const token = mine.adminKey
      const list = `${base}/invitations`
      const invite = (email: string) => call("POST", list, { token, body: { email } })
      const ada = yield* invite("Ada@Example.test")
      assert.strictEqual(ada.status, 201, ada.text)
      assert.strictEqual(ada.body.email, "ada@example.test")
      assert.deepStrictEqual((yield* invite("ADA@example.test")).body, ada.body)
      yield* invite("bob@example.test")
      const listed = yield* call("GET", list, { token: mine.memberKey })
      assert.deepStrictEqual(
        listed.body.map(({ email }: { email: string }) => email),
        ["ada@example.test", "bob@example.test"]
      )
      assert.strictEqual((yield* invite("nobody")).status, 422)
      const one = `${list}/${ada.body.id}`
      assert.strictEqual((yield* call("DELETE", one, { token: mine.memberKey })).status, 403)
      assert.deepStrictEqual((yield* call("DELETE", one, { token })).body, { ok: true })
      assert.strictEqual((yield* call("DELETE", one, { token })).status, 404)
      assert.strictEqual((yield* call("DELETE", `${list}/x`, { token })).status, 404)
      const audited = yield* sql(`select operation, outcome from audit_log where org_id = '${mine.id}'
        and operation like 'access.%' and outcome < 300 order by operation`)
      assert.deepStrictEqual(
        audited.map(({ operation }) => operation),
        ["access.invite", "access.invite", "access.revokeInvitation"]
      )
      yield* sql(`insert into access_invitation (org_id, id, project_id, email)
        select '${mine.id}', gen_random_uuid(), uid, n || '@full.test' from resource, generate_series(1, 999) n
        where org_id = '${mine.id}' and kind = 'Project'`)
      assert.strictEqual((yield* invite("one.more@example.test")).body.code, "too_many_invitations")
      assert.strictEqual((yield* invite("bob@example.test")).status, 201)

      const other = yield* place
      for (const [method, path, body] of [
        ["GET", base, undefined],
        ["PUT", base, {}],
        ["GET", list, undefined],
        ["POST", list, { email: "a@b.test" }]
      ] as const)
        assert.strictEqual((yield* call(method, path, { token: other.mine.adminKey, body })).status, 404)
    })
  )

  it.effect("a manifest says the policy, and leaves it alone where it does not", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { mine, base } = yield* place
      const token = mine.owner
      const apply = (project: object) =>
        call("POST", `/v1/orgs/${mine.slug}/manifest/apply`, {
          token,
          body: {
            manifest: {
              version: 1,
              organization: mine.slug,
              projects: [{ slug: "shop", name: "Shop", runtimeClass: "scale-to-zero", ...project }]
            }
          }
        })
      const access = { mode: "organization", previewMode: "inherit", environments: { production: "public" } }
      const applied = yield* apply({ access })
      assert.strictEqual(applied.status, 202, applied.text)
      const { body } = yield* call("GET", base, { token })
      assert.deepStrictEqual([body.mode, body.managedBy], ["organization", "manifest"])
      yield* untilModes(mine, { preview: "organization", production: "public" })
      assert.strictEqual((yield* apply({})).status, 202)
      assert.strictEqual((yield* call("GET", base, { token })).body.mode, "organization")
      const exported = yield* call("GET", `/v1/orgs/${mine.slug}/manifest`, { token })
      assert.deepInclude(exported.body.projects[0], { access })
    })
  )
})
