import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { digestOf } from "#src/access/Access.ts"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { onwardOf } from "../agents/asking.ts"
import { type Seen, type Visitor, visitor } from "../identity/visitor.ts"
import { challenge } from "./world.ts"

/** What goes unseen with the form of a page that goes there. */
const hiddenOf = (page: string, action = "/access"): Record<string, string> =>
  Object.fromEntries(
    [
      ...(page.split(`action="${action}"`)[1]?.split("</form>")[0] ?? "").matchAll(
        /type="hidden" name="(\w+)" value="([^"]*)"/g
      )
    ].map(([, name = "", value = ""]) => [name, value.replaceAll("&amp;", "&")])
  )

layer(testPlane(), { excludeTestServices: true })("the page of a protected host", (it) => {
  const url = (host: string) => `https://${host}:8443`
  /** A tenant with a host of this mode. */
  const place = Effect.fn(function* (mode: string) {
    const { call, tenant, sql } = yield* Plane
    const mine = yield* tenant()
    const path = `/v1/orgs/${mine.slug}/projects`
    const made = yield* call("POST", path, { token: mine.owner, body: { name: "Shop", slug: "shop" } })
    assert.strictEqual(made.status, 201, made.text)
    const { address } = yield* eventually(
      "it has an address",
      Effect.map(call("GET", `${path}/shop/environments`, { token: mine.owner }), ({ body }) =>
        body.find((one: { slug: string }) => one.slug === "production")
      ),
      (one) => typeof one?.address === "string"
    )
    yield* sql(`update edge_site set access = '${mode}' where org_id = '${mine.id}'`)
    const host = new URL(address).hostname
    return { mine, host }
  })
  const at = (host: string, params: Readonly<Record<string, string>> = {}) =>
    `/access?${new URLSearchParams({ host, state: challenge, return: "/cart?step=2", ...params })}`
  const signedIn = Effect.fn(function* (session: string) {
    const browser = yield* visitor
    browser.cookies.set("svc_session", session)
    return browser
  })
  const codes = Effect.fnUntraced(function* ({ id }: Tenant) {
    const { sql } = yield* Plane
    return yield* sql(`select encode(digest, 'hex') as digest, hostname, return_path,
      encode(challenge, 'base64') as challenge, expires_at - now() <= interval '60 seconds' as soon
      from visit_code where org_id = '${id}'`)
  })
  const isOurs = ({ headers }: Seen) => {
    assert.strictEqual(headers.get("cache-control"), "no-store")
    assert.notInclude(headers.get("referrer-policy") ?? "", "unsafe-url")
    assert.strictEqual(headers.get("access-control-allow-origin"), null)
  }
  const framed = ({ headers }: Seen) => {
    assert.strictEqual(headers.get("x-frame-options"), "DENY")
    assert.include(headers.get("content-security-policy") ?? "", "frame-ancestors 'none'")
  }

  it.effect("a stranger signs in first, and comes back to the same page", () =>
    Effect.gen(function* () {
      const { host } = yield* place("organization")
      const browser = yield* visitor
      const sent = yield* browser.get(at(host))
      isOurs(sent)
      assert.strictEqual(sent.status, 303)
      const form = yield* browser.get(sent.location ?? "")
      assert.strictEqual(hiddenOf(form.text, "/sign-in")["next"], at(host))
    })
  )

  it.effect("a member goes back at once, with a code that the store has the digest of", () =>
    Effect.gen(function* () {
      const { mine, host } = yield* place("organization")
      const browser = yield* signedIn(mine.member)
      const sent = yield* browser.get(at(host))
      isOurs(sent)
      assert.strictEqual(sent.status, 303)
      assert.strictEqual(sent.headers.get("referrer-policy"), "no-referrer")
      const to = new URL(sent.location ?? "")
      assert.strictEqual(to.origin + to.pathname, `${url(host)}/.svc/access`)
      assert.deepStrictEqual([...to.searchParams.keys()], ["code"])
      const digest = digestOf(to.searchParams.get("code") ?? "").toString("hex")
      assert.deepStrictEqual(yield* codes(mine), [
        {
          digest,
          hostname: host,
          return_path: "/cart?step=2",
          challenge: Buffer.from(challenge, "base64url").toString("base64"),
          soon: true
        }
      ])
    })
  )

  /** What the form of a page sends. */
  const agree = (browser: Visitor, shown: Seen, changes = {}, headers?: Record<string, string>) =>
    browser.post("/access", { ...hiddenOf(shown.text), ...changes }, headers)

  it.effect("somebody else is asked before the app is told who they are", () =>
    Effect.gen(function* () {
      const { mine, host } = yield* place("authenticated")
      const { tenant } = yield* Plane
      const other = yield* tenant()
      const browser = yield* signedIn(other.member)
      const shown = yield* browser.get(at(host))
      assert.strictEqual(shown.status, 200)
      isOurs(shown)
      framed(shown)
      assert.include(shown.text, `member-${other.slug}@example.test`)
      assert.include(shown.text, host)
      assert.deepStrictEqual(yield* codes(mine), [])
      // A form of another site, and one that was shown to somebody else.
      const foreign = { origin: "https://evil.test", "sec-fetch-site": "cross-site" }
      assert.strictEqual((yield* agree(browser, shown, {}, foreign)).status, 403)
      assert.strictEqual((yield* agree(browser, shown, { user: mine.id })).status, 409)
      assert.deepStrictEqual(yield* codes(mine), [])
      const onward = yield* agree(browser, shown)
      assert.strictEqual(onward.status, 200)
      isOurs(onward)
      framed(onward)
      assert.strictEqual(onward.headers.get("referrer-policy"), "no-referrer")
      const to = new URL(onwardOf(onward.text) ?? "")
      assert.strictEqual(to.origin + to.pathname, `${url(host)}/.svc/access`)
      assert.lengthOf(yield* codes(mine), 1)
    })
  )

  it.effect("whoever may not see it is told so, and gets no code", () =>
    Effect.gen(function* () {
      const { tenant, sql } = yield* Plane
      const other = yield* tenant()
      const browser = yield* signedIn(other.owner)
      for (const mode of ["organization", "invite_only"]) {
        const { mine, host } = yield* place(mode)
        const shown = yield* browser.get(at(host))
        assert.strictEqual(shown.status, 403)
        framed(shown)
        assert.notInclude(shown.text, 'name="state"')
        const fields = { host, state: challenge, return: "/", user: "" }
        const [row] = yield* sql(`select user_id from member where org_id = '${other.id}' and role = 'owner'`)
        const forced = yield* browser.post("/access", { ...fields, user: String(row?.["user_id"]) })
        assert.strictEqual(forced.status, 403)
        assert.deepStrictEqual(yield* codes(mine), [])
      }
      const { mine, host } = yield* place("invite_only")
      yield* sql(`insert into access_invitation (org_id, id, project_id, email)
        select '${mine.id}', gen_random_uuid(), uid, 'owner-${other.slug}@example.test' from resource
        where org_id = '${mine.id}' and kind = 'Project'`)
      assert.strictEqual((yield* browser.get(at(host))).status, 200)
    })
  )

  it.effect("it leads to hosts that the edge serves, and nowhere else", () =>
    Effect.gen(function* () {
      const { mine, host } = yield* place("organization")
      const browser = yield* signedIn(mine.member)
      const elsewhere = [
        "evil.test",
        `${host}.evil.test`,
        `${host}:1`,
        `${host}/x`,
        `evil.test@${host}`,
        `${host}\r\nx: y`,
        host.toUpperCase()
      ]
      for (const name of elsewhere) {
        const shown = yield* browser.get(at(name))
        assert.strictEqual(shown.status, 404, name)
        assert.isNull(shown.location)
      }
      for (const state of ["", "short", `${challenge}=`, "x".repeat(44)])
        assert.strictEqual((yield* browser.get(at(host, { state }))).status, 400, state)
      assert.strictEqual((yield* browser.get("/access")).status, 400)
      for (const path of ["//evil.test", "/\\evil.test", "https://evil.test", "/a\r\nb", "/.svc/access"]) {
        const sent = yield* browser.get(at(host, { return: path }))
        assert.isTrue(sent.location?.startsWith(`${url(host)}/.svc/access?code=`), path)
      }
      const paths = (yield* codes(mine)).map(({ return_path }) => return_path)
      assert.deepStrictEqual(paths, ["/", "/", "/", "/", "/"])
      // Another site's page may have the browser come here; a frame of it gets no session with it (SameSite).
      assert.isTrue(
        (yield* browser.get(at(host))).setCookies.every((cookie) => !cookie.includes("svc_session"))
      )
    })
  )

  it.effect("nothing that lets in is in the audit log or an event", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const { mine, host } = yield* place("organization")
      const browser = yield* signedIn(mine.member)
      const sent = yield* browser.get(at(host))
      const code = new URL(sent.location ?? "").searchParams.get("code") ?? ""
      const [all] = yield* sql(`select coalesce((select jsonb_agg(a)::text from audit_log a), '')
        || coalesce((select jsonb_agg(e)::text from resource_event e), '') as text`)
      for (const secret of [code, code.slice(5), mine.member, challenge])
        assert.notInclude(String(all?.["text"]), secret)
    })
  )
})
