import { randomUUID } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { mailFor, newcomer, type Visitor, visitor } from "../identity/visitor.ts"
import {
  answerOf,
  asking,
  begin,
  callback,
  hiddenOf,
  onwardOf,
  register,
  state,
  verifier,
  waits
} from "./asking.ts"
import { redeem } from "./plane.ts"

const password = "three words together"
const everything = "caches.create caches.list env.delete projects.list resources.abandon"

layer(testPlane({ signInRateLimit: 10_000 }), { excludeTestServices: true })(
  "the authorization page",
  (it) => {
    const signedIn = Effect.fn(function* (session: string) {
      const browser = yield* visitor
      browser.cookies.set("svc_session", session)
      return browser
    })
    /** Opens the page, and fills its form. */
    const decide = Effect.fn(function* (
      browser: Visitor,
      page: string,
      chosen: Readonly<Record<string, string>>,
      headers?: Record<string, string>
    ) {
      const shown = yield* browser.get(page)
      return yield* browser.post("/agent/authorize", { ...hiddenOf(shown.text), ...chosen }, headers)
    })
    const approve = (browser: Visitor, page: string, { id }: Pick<Tenant, "id">, more = {}) =>
      decide(browser, page, { decision: "approve", organization: id, ...more })
    const codesOf = ({ id }: Pick<Tenant, "id">) =>
      Effect.flatMap(Plane, ({ sql }) =>
        sql(`select c.role, c.scopes, c.client_id, a.email from authorization_code c join account a on a.id = c.user_id
        where c.org_id = '${id}'`)
      )

    it.effect("shows a stored request, of which the address carries the id alone", () =>
      Effect.gen(function* () {
        const { sql, tenant } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.owner)
        const page = yield* begin(browser, { scope: everything, state: "x".repeat(1_000) })
        // It counts as a request of this person, which no flood of strangers holds up.
        const own =
          yield* sql(`select from rate_limit r join member m on r.bucket = 'agents:pending:' || m.user_id
          where m.org_id = '${mine.id}'`)
        assert.strictEqual(own.length, 1)
        const shown = yield* browser.get(page)
        assert.strictEqual(shown.status, 200)
        assert.include(shown.text, `<strong>owner-${mine.slug}@example.test</strong>`)
        assert.include(shown.text, "Remove a variable <code>env.delete</code>")
        assert.include(shown.text, "<strong>a program on this computer (127.0.0.1:49152)</strong>")
        assert.include(
          shown.headers.get("content-security-policy") ?? "",
          "form-action 'self'; frame-ancestors 'none'"
        )
        assert.strictEqual(shown.headers.get("x-frame-options"), "DENY")
        assert.strictEqual(shown.headers.get("cache-control"), "no-store")
        assert.isTrue(yield* waits(page))
      })
    )

    it.effect(
      "approval goes to the callback with a code for what was chosen: nothing dangerous unless ticked",
      () =>
        Effect.gen(function* () {
          const { tenant, url } = yield* Plane
          for (const [ticked, scopes] of [
            [{}, ["caches.create", "caches.list", "env.delete", "projects.list"]],
            [{ scope: "resources.abandon" }, everything.split(" ")],
            // Nobody asked for it.
            [{ scope: "caches.delete" }, ["caches.create", "caches.list", "env.delete", "projects.list"]]
          ] as const) {
            const mine = yield* tenant()
            const browser = yield* signedIn(mine.admin)
            const approved = yield* approve(
              browser,
              yield* begin(browser, { scope: everything }),
              mine,
              ticked
            )
            // No redirect: Chromium holds those after a form against the policy of the form's page.
            assert.deepStrictEqual([approved.status, approved.location], [200, null], approved.text)
            assert.strictEqual(approved.headers.get("referrer-policy"), "no-referrer")
            assert.strictEqual(approved.headers.get("cache-control"), "no-store")
            assert.strictEqual(approved.headers.get("cross-origin-opener-policy"), "unsafe-none")
            const { code, ...answer } = answerOf(onwardOf(approved.text))
            assert.deepStrictEqual(answer, { to: callback, state, iss: url })
            assert.match(code ?? "", /^svcc_/)
            assert.deepStrictEqual(yield* codesOf(mine), [
              { role: "admin", scopes, client_id: "svc-cli", email: `admin-${mine.slug}@example.test` }
            ])
            const mail = yield* mailFor(`admin-${mine.slug}@example.test`)
            assert.strictEqual(mail.link, "/account/agents")
            assert.include(mail.text, "That is what the program calls itself; nobody checked it.")
          }
        })
    )

    it.effect("what was chosen is what the program may do then, in that organization", () =>
      Effect.gen(function* () {
        const { call, tenant, url } = yield* Plane
        const mine = yield* tenant()
        const other = yield* tenant()
        const browser = yield* signedIn(mine.owner)
        const tokenFor = Effect.fn(function* (ticked: Readonly<Record<string, string>>) {
          const page = yield* begin(browser, { scope: "projects.list resources.abandon" })
          const { code = "" } = answerOf(onwardOf((yield* approve(browser, page, mine, ticked)).text))
          const { status, body } = yield* redeem(url, code, verifier, { redirect_uri: callback })
          assert.deepStrictEqual([status, body.role, body.organization], [200, "admin", mine.slug])
          return String(body.access_token)
        })
        const abandon = `/v1/orgs/${mine.slug}/resources/${randomUUID()}/abandon`
        const without = yield* tokenFor({})
        const statusOf = (method: string, path: string, token: string) =>
          Effect.map(
            call(method, path, { token, body: method === "POST" ? {} : undefined }),
            ({ status }) => status
          )
        assert.strictEqual(yield* statusOf("GET", `/v1/orgs/${mine.slug}/projects`, without), 200)
        assert.strictEqual(yield* statusOf("GET", `/v1/orgs/${other.slug}/projects`, without), 404)
        assert.strictEqual(yield* statusOf("POST", `/v1/orgs/${mine.slug}/projects`, without), 403)
        assert.strictEqual(yield* statusOf("POST", abandon, without), 403)
        // There is no such resource: it got as far as that.
        const ticked = yield* tokenFor({ scope: "resources.abandon" })
        assert.strictEqual(yield* statusOf("POST", abandon, ticked), 404)
      })
    )

    it.effect("denial goes there too, and nothing is granted; a form that says neither does nothing", () =>
      Effect.gen(function* () {
        const { tenant, url } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.member)
        const page = yield* begin(browser)
        for (const decision of ["", "Approve", "yes"]) {
          const asked = yield* decide(browser, page, { decision, organization: mine.id })
          assert.strictEqual(asked.status, 422)
          assert.include(asked.text, "Press Approve or Deny.")
        }
        assert.isTrue(yield* waits(page))
        const denied = yield* decide(browser, page, { decision: "deny" })
        assert.strictEqual(denied.status, 200)
        assert.deepStrictEqual(answerOf(onwardOf(denied.text)), {
          to: callback,
          error: "access_denied",
          state,
          iss: url
        })
        assert.deepStrictEqual(yield* codesOf(mine), [])
        assert.isFalse(yield* waits(page))
      })
    )

    it.effect(
      "whoever is not signed in comes back to the same request by each way of signing in, and approves nothing",
      () =>
        Effect.gen(function* () {
          const email = "returns@example.com"
          yield* newcomer(email, password)
          const ways: Readonly<
            Record<string, (browser: Visitor, next: string) => Effect.Effect<string | null, unknown, Plane>>
          > = {
            password: (browser, next) =>
              Effect.map(browser.post("/sign-in", { email, password, next }), ({ location }) => location),
            "a wrong password first": Effect.fn(function* (browser, next) {
              const wrong = yield* browser.post("/sign-in", { email, password: "not the password", next })
              assert.strictEqual(wrong.status, 401)
              const kept = /name="next" value="([^"]*)"/.exec(wrong.text)?.[1] ?? ""
              return (yield* browser.post("/sign-in", { email, password, next: kept })).location
            }),
            link: Effect.fn(function* (browser, next) {
              yield* browser.post("/sign-in/by-mail", { email, next })
              const { token } = yield* mailFor(email, 3)
              return (yield* browser.post("/sign-in/link", { token })).location
            }),
            "a new password": Effect.fn(function* (browser, next) {
              yield* browser.post("/reset-password", { email, next })
              const { token } = yield* mailFor(email, 4)
              return (yield* browser.post("/reset-password/new", {
                token,
                password: "completely other words"
              })).location
            }),
            "an account of one's own": Effect.fn(function* (browser, next) {
              yield* browser.post("/sign-up", { name: "New", email: "fresh@example.com", next })
              const { token } = yield* mailFor("fresh@example.com")
              const first = (yield* browser.post("/sign-in/link", { token })).location
              return new URL(first ?? "", "http://x").searchParams.get("next")
            })
          }
          for (const [way, signIn] of Object.entries(ways)) {
            const browser = yield* visitor
            const page = yield* begin(browser)
            const sent = yield* browser.get(page)
            assert.strictEqual(sent.location, `/sign-in?next=${encodeURIComponent(page)}`, way)
            assert.include((yield* browser.get(sent.location ?? "")).text, "what a program asks of you")
            assert.strictEqual(yield* signIn(browser, page), page, way)
            const shown = yield* browser.get(page)
            assert.strictEqual(shown.status, 200, way)
            assert.include(shown.text, way === "an account of one's own" ? "fresh@example.com" : email)
            assert.isTrue(yield* waits(page), way)
            // Somebody else may sign in instead, and comes back as well.
            const out = yield* browser.post("/account/sign-out", { next: page })
            assert.strictEqual(out.location, `/sign-in?next=${encodeURIComponent(page)}`)
          }
        })
    )

    it.effect("keeps the window's opener on every page on the way to the program, and on no other", () =>
      Effect.gen(function* () {
        const browser = yield* visitor
        const next = `?next=${encodeURIComponent(yield* begin(browser))}`
        const policyOf = (path: string) =>
          Effect.map(browser.get(path), ({ headers }) => headers.get("cross-origin-opener-policy"))
        for (const path of ["/sign-in", "/sign-in/by-mail", "/sign-up", "/reset-password"]) {
          assert.strictEqual(yield* policyOf(`${path}${next}`), "unsafe-none", path)
          assert.strictEqual(yield* policyOf(path), "same-origin", path)
        }
        assert.strictEqual(yield* policyOf(asking({ client_id: "nobody" })), "unsafe-none")
      })
    )

    it.effect("a form from another site, or from nobody knows where, decides nothing", () =>
      Effect.gen(function* () {
        const { tenant, url } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.owner)
        const page = yield* begin(browser)
        for (const headers of [
          {},
          { origin: "https://evil.example" },
          { origin: "null" },
          { origin: url, "sec-fetch-site": "cross-site" },
          { origin: url, "sec-fetch-site": "same-site" },
          { "sec-fetch-site": "none" }
        ] satisfies ReadonlyArray<Record<string, string>>) {
          for (const decision of ["approve", "deny"]) {
            const refused = yield* decide(browser, page, { decision, organization: mine.id }, headers)
            assert.strictEqual(refused.status, 403, JSON.stringify(headers))
            assert.isNull(refused.location)
          }
        }
        // Nor does any address: a link approves nothing.
        for (const more of ["&decision=approve", `&decision=approve&organization=${mine.id}&user=x`])
          assert.strictEqual((yield* browser.get(`${page}${more}`)).status, 200)
        assert.isTrue(yield* waits(page))
        assert.deepStrictEqual(yield* codesOf(mine), [])
      })
    )

    it.effect("a request is answered once, in time; what is over says so and leads nowhere", () =>
      Effect.gen(function* () {
        const { sql, tenant } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.owner)
        const page = yield* begin(browser)
        const fields = hiddenOf((yield* browser.get(page)).text)
        const send = (decision: string) =>
          browser.post("/agent/authorize", { ...fields, organization: mine.id, decision })
        const both = yield* Effect.all([send("approve"), send("approve"), send("approve")], {
          concurrency: 3
        })
        assert.deepStrictEqual(both.map(({ status }) => status).sort(), [200, 410, 410])
        assert.strictEqual((yield* codesOf(mine)).length, 1)

        const late = yield* begin(browser)
        const lateFields = hiddenOf((yield* browser.get(late)).text)
        yield* sql(`update authorization_request set expires_at = now() where id = '${late.slice(-36)}'`)
        const tooLate = yield* browser.post("/agent/authorize", {
          ...lateFields,
          organization: mine.id,
          decision: "approve"
        })
        assert.strictEqual(tooLate.status, 410)

        const stranger = yield* visitor
        for (const who of [browser, stranger]) {
          for (const id of [
            page.slice(-36),
            late.slice(-36),
            randomUUID(),
            "x",
            "",
            "'",
            "%00",
            "a".repeat(2_000)
          ]) {
            const gone = yield* who.get(`/agent/authorize?pending=${id}`)
            assert.deepStrictEqual([gone.status, gone.location], [410, null], id)
            assert.include(gone.text, "This request is over")
            assert.notInclude(gone.text, "127.0.0.1:49152")
          }
        }
        for (const decision of ["approve", "deny"]) assert.strictEqual((yield* send(decision)).status, 410)
        assert.strictEqual((yield* codesOf(mine)).length, 1)
      })
    )

    it.effect(
      "offers only organizations where one's role suffices, and takes no other, nor a role above one's own",
      () =>
        Effect.gen(function* () {
          const { sql, tenant } = yield* Plane
          const mine = yield* tenant()
          const other = yield* tenant()
          const second = yield* tenant()
          yield* sql(`insert into member (org_id, id, user_id, role)
        select '${second.id}', '${randomUUID()}', user_id, 'member' from member where org_id = '${mine.id}' and role = 'admin'`)
          const admin = yield* signedIn(mine.admin)
          const page = yield* begin(admin, { scope: "caches.create" })
          const shown = (yield* admin.get(page)).text
          assert.include(shown, `value="${mine.id}" required>`)
          for (const { id } of [other, second]) {
            assert.notInclude(shown, id)
            const refused = yield* approve(admin, page, { id })
            assert.strictEqual(refused.status, 403)
            assert.include(refused.text, 'role="alert"')
          }
          for (const id of ["", "x", mine.slug, "'"]) {
            assert.include([403, 422], (yield* approve(admin, page, { id })).status)
          }
          const asMember = (yield* admin.get(yield* begin(admin))).text
          assert.include(asMember, second.id)
          assert.notInclude(asMember, " checked")

          const member = yield* signedIn(mine.member)
          const above = yield* begin(member, { scope: "caches.create" })
          const none = (yield* member.get(above)).text
          assert.include(none, "you are an admin of no organization")
          assert.notInclude(none, 'value="approve"')
          assert.strictEqual((yield* approve(member, above, mine)).status, 403)
          // Between looking and approving the role is taken away.
          yield* sql(`update member set role = 'member' where org_id = '${mine.id}' and role = 'admin'`)
          assert.strictEqual((yield* approve(admin, page, mine)).status, 403)
          for (const each of [page, above]) assert.isTrue(yield* waits(each))
          for (const each of [mine, other, second]) assert.deepStrictEqual(yield* codesOf(each), [])
        })
    )

    it.effect("takes no decision of somebody else than whom the page was shown to", () =>
      Effect.gen(function* () {
        const { tenant } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.admin)
        const page = yield* begin(browser, { scope: "resources.abandon" })
        const fields = {
          ...hiddenOf((yield* browser.get(page)).text),
          decision: "approve",
          organization: mine.id,
          scope: "resources.abandon"
        }
        browser.cookies.set("svc_session", mine.owner)
        const stopped = yield* browser.post("/agent/authorize", fields)
        assert.strictEqual(stopped.status, 409)
        assert.include(stopped.text, `owner-${mine.slug}@example.test`)
        assert.notInclude(stopped.text, " checked")
        browser.cookies.clear()
        const out = yield* browser.post("/agent/authorize", fields)
        assert.strictEqual(out.location, `/sign-in?next=${encodeURIComponent(page)}`)
        assert.deepStrictEqual(yield* codesOf(mine), [])
        assert.isTrue(yield* waits(page))
      })
    )

    it.effect("with nothing ticked of what is dangerous alone there is nothing to approve", () =>
      Effect.gen(function* () {
        const { tenant } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.owner)
        const page = yield* begin(browser, { scope: "resources.abandon" })
        assert.strictEqual((yield* approve(browser, page, mine)).status, 422)
        const ticked = yield* approve(browser, page, { id: "" }, { scope: "resources.abandon" })
        assert.strictEqual(ticked.status, 422)
        assert.match(ticked.text, /name="scope" value="resources.abandon" checked/)
        assert.strictEqual((yield* approve(browser, page, mine, { scope: "resources.abandon" })).status, 200)
      })
    )

    it.effect("whatever is sent, nothing breaks, nothing is shown as it is, and nothing is decided", () =>
      Effect.gen(function* () {
        const { tenant } = yield* Plane
        const mine = yield* tenant()
        const browser = yield* signedIn(mine.owner)
        const page = yield* begin(browser)
        const usual = {
          ...hiddenOf((yield* browser.get(page)).text),
          decision: "approve",
          organization: mine.id
        }
        const hostile = [
          "\0",
          "\ud800",
          "' or 1=1 --",
          "%00",
          "<script>alert(1)</script>",
          "x".repeat(9_000),
          `${mine.id}\0x`
        ]
        for (const value of hostile) {
          for (const name of ["pending", "user", "organization", "decision"]) {
            const seen = yield* browser.post("/agent/authorize", { ...usual, [name]: value })
            assert.include([403, 409, 410, 422], seen.status, `${name} ${value}`)
            assert.notInclude(seen.text, "<script>")
          }
          for (const name of ["organization", "grant"])
            assert.strictEqual(
              (yield* browser.post("/account/agents/revoke", { ...usual, [name]: value })).status,
              303
            )
          for (const path of [
            `/agent/authorize?pending=${encodeURIComponent(value.toWellFormed())}`,
            `/account/agents?done=${encodeURIComponent(value.toWellFormed())}`
          ]) {
            const seen = yield* browser.get(path)
            assert.isBelow(seen.status, 500)
            assert.notInclude(seen.text, "<script>")
          }
        }
        const large = yield* browser.post("/agent/authorize", { ...usual, scope: "x".repeat(20_000) })
        assert.strictEqual(large.status, 400)
        assert.isTrue(yield* waits(page))
        assert.deepStrictEqual(yield* codesOf(mine), [])
      })
    )

    it.effect(
      "a request whose client or address is wrong ends on a page; other faults are told to the program",
      () =>
        Effect.gen(function* () {
          const browser = yield* visitor
          for (const over of [
            { client_id: "nobody" },
            { client_id: "" },
            { redirect_uri: "" },
            { redirect_uri: "https://evil.example/callback" },
            { redirect_uri: "http://127.0.0.1.evil.example:49152/callback" },
            { redirect_uri: "http://127.0.0.1:49152/other" }
          ]) {
            const refused = yield* browser.get(asking(over))
            assert.deepStrictEqual([refused.status, refused.location], [400, null], JSON.stringify(over))
            assert.include(refused.text, "This request cannot be answered")
            assert.notInclude(refused.text, "<a ")
          }
          for (const [over, error] of [
            [{ code_challenge_method: "plain" }, "invalid_request"],
            [{ scope: "caches.delete" }, "invalid_scope"],
            [{ scope: "nothing.known" }, "invalid_scope"],
            [{ scope: "caches.list", role: "owner" }, "invalid_scope"]
          ] as const) {
            const told = yield* browser.get(asking(over))
            assert.strictEqual(told.status, 303)
            const answer = answerOf(told.location)
            assert.deepStrictEqual([answer["to"], answer["error"], answer["state"]], [callback, error, state])
          }
        })
    )

    it.effect(
      "a program that calls itself svc is one that nobody checked, and no link leads to it by itself",
      () =>
        Effect.gen(function* () {
          const { tenant, url } = yield* Plane
          const mine = yield* tenant()
          const browser = yield* signedIn(mine.owner)
          const back = "https://agents.example/back"
          const other = { client_id: yield* register("svc <b>command line", [back]), redirect_uri: back }
          const page = yield* begin(browser, other)
          const shown = yield* browser.get(page)
          assert.include(shown.text, "calls itself “<strong><bdi>svc &lt;b&gt;command line</bdi></strong>”")
          assert.include(shown.text, "nobody has checked it")
          assert.include(shown.text, "The answer goes to <strong>agents.example</strong>")
          const approved = yield* approve(browser, page, mine)
          const { to, iss } = answerOf(onwardOf(approved.text))
          assert.deepStrictEqual([to, iss], [back, url])

          const wrong = yield* browser.get(asking({ ...other, code_challenge_method: "plain" }))
          assert.deepStrictEqual([wrong.status, wrong.location], [400, null])
          assert.isNull(onwardOf(wrong.text))
          const link = /<a href="([^"]*)" rel="noreferrer">Tell agents.example</.exec(wrong.text)?.[1] ?? ""
          const told = answerOf(link.replaceAll("&amp;", "&"))
          assert.deepStrictEqual([told["to"], told["error"], told["state"]], [back, "invalid_request", state])
        })
    )

    it.effect("the account lists what its person let in, and takes it back: theirs, and nobody else's", () =>
      Effect.gen(function* () {
        const { sql, tenant } = yield* Plane
        const mine = yield* tenant()
        const other = yield* tenant()
        const grant = Effect.fn(function* (
          org: Tenant,
          role: string,
          name: string,
          more = "null, now() + interval '1 day'"
        ) {
          const id = randomUUID()
          yield* sql(`insert into agent_grant
            (org_id, id, user_id, client_id, client_name, audience, role, scopes, revoked_at, expires_at)
          select '${org.id}', '${id}', user_id, 'svc-mcp', '${name}', 'mcp', 'member', '{caches.list,projects.list}', ${more}
          from member where org_id = '${org.id}' and role = '${role}'`)
          return id
        })
        const own = yield* grant(mine, "member", "Mine <b>")
        const hers = yield* grant(mine, "owner", "Hers")
        yield* grant(mine, "member", "Revoked", "now(), now() + interval '1 day'")
        yield* grant(mine, "member", "Expired", "null, now()")
        const elsewhere = yield* grant(other, "member", "Elsewhere")

        assert.strictEqual(
          (yield* (yield* visitor).get("/account/agents")).location,
          "/sign-in?next=%2Faccount%2Fagents"
        )
        const browser = yield* signedIn(mine.member)
        assert.include((yield* browser.get("/account")).text, 'href="/account/agents"')
        const listed = (yield* browser.get("/account/agents")).text
        assert.include(listed, "Mine &lt;b&gt;")
        assert.include(listed, `<strong>${mine.slug}</strong>, as a member`)
        assert.include(listed, "<code>caches.list, projects.list</code>")
        for (const name of ["Hers", "Revoked", "Expired", "Elsewhere"]) assert.notInclude(listed, name)

        const revoke = (organization: string, id: string, headers?: Record<string, string>) =>
          browser.post("/account/agents/revoke", { organization, grant: id }, headers)
        assert.strictEqual((yield* revoke(mine.id, own, { "sec-fetch-site": "cross-site" })).status, 403)
        for (const [organization, id] of [
          [mine.id, hers],
          [other.id, elsewhere],
          [other.id, own],
          ["x", "'"]
        ] as const)
          assert.strictEqual((yield* revoke(organization, id)).status, 303)
        const revoked = sql(`select client_name from agent_grant where revoked_at is not null
        and org_id in ('${mine.id}', '${other.id}') order by 1`)
        assert.deepStrictEqual(yield* revoked, [{ client_name: "Revoked" }])
        const done = yield* revoke(mine.id, own)
        assert.strictEqual(done.location, "/account/agents?done=revoked")
        const after = (yield* browser.get(done.location ?? "")).text
        assert.include(after, 'role="status"')
        assert.include(after, "There is none.")
        assert.deepStrictEqual(yield* revoked, [{ client_name: "Mine <b>" }, { client_name: "Revoked" }])
        const audited = yield* sql(`select credential, outcome from audit_log
        where org_id = '${mine.id}' and operation = 'agentGrants.revoke'`)
        assert.deepStrictEqual(audited, [{ credential: "session", outcome: 200 }])
      })
    )
  }
)

layer(testPlane({ roles: new Set(["api"] as const) }, { SVC_AGENT_RATE_LIMIT: "2" }), {
  excludeTestServices: true
})("a network that asks too often", (it) => {
  it.effect("is told when to come back, on a page; what waits already is shown", () =>
    Effect.gen(function* () {
      const browser = yield* visitor
      const { session } = yield* Plane
      browser.cookies.set("svc_session", session)
      const page = yield* begin(browser)
      const asked = yield* eventually("a refusal", browser.get(asking()), ({ status }) => status === 429)
      assert.include(asked.text, "Too many requests")
      assert.match(asked.headers.get("retry-after") ?? "", /^[1-9]\d?$/)
      assert.strictEqual((yield* browser.get(page)).status, 200)
    })
  )
})
