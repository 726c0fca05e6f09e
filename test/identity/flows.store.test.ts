import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { mailFor, mailsFor, newcomer, visitor } from "./visitor.ts"

const password = "three words together"

layer(testPlane({ signInRateLimit: 10_000 }), { excludeTestServices: true })("signing in", (it) => {
  it.effect("begins with a mail; its link shows who signs in, works once, and makes the account", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const browser = yield* visitor
      assert.strictEqual((yield* browser.get("/sign-up")).status, 200)
      const sent = yield* browser.post("/sign-up", {
        name: "Ann  Example",
        email: "Ann.E@Example.com",
        next: ""
      })
      assert.deepStrictEqual([sent.status, sent.location], [303, "/check-mail"])
      // Nobody has an account before the address is proved.
      assert.deepStrictEqual(yield* sql("select 1 from account where email = 'ann.e@example.com'"), [])
      const mail = yield* mailFor("ann.e@example.com")
      const opened = yield* browser.get(mail.link)
      assert.include(opened.text, "ann.e@example.com")
      // Programs that check mail look at links; only the button uses it.
      assert.strictEqual((yield* browser.get(mail.link)).status, 200)
      const entered = yield* browser.post("/sign-in/link", { token: mail.token })
      assert.strictEqual(entered.status, 303)
      assert.match(entered.location ?? "", /^\/account\/password\?next=/)
      assert.strictEqual((yield* browser.get(mail.link)).status, 410)
      assert.strictEqual((yield* (yield* visitor).post("/sign-in/link", { token: mail.token })).status, 410)

      const me = yield* browser.json("GET", "/v1/me")
      assert.strictEqual(me.body.credential, "session")
      const orgs = yield* browser.json("GET", "/v1/orgs")
      assert.strictEqual(orgs.body.length, 1)
      assert.deepStrictEqual(
        [orgs.body[0].isPersonal, orgs.body[0].name, orgs.body[0].billingStatus],
        [true, "Ann Example", "active"]
      )
      assert.match(orgs.body[0].slug, /^ann-e-[0-9a-f]{10}$/)
      const gone = yield* browser.json("DELETE", `/v1/orgs/${orgs.body[0].id}`)
      assert.strictEqual(gone.status, 422)
      const members = yield* browser.json("GET", `/v1/orgs/${orgs.body[0].slug}/members`)
      assert.deepStrictEqual([members.body[0].email, members.body[0].role], ["ann.e@example.com", "owner"])
      const account = yield* browser.get("/account")
      assert.include(account.text, "Ann Example")
    })
  )

  it.effect("with a password: chosen after signing up, given with the address however it is written", () =>
    Effect.gen(function* () {
      const first = yield* newcomer("pat@example.com")
      const short = yield* first.post("/account/password", { password: "short", next: "/account" })
      assert.strictEqual(short.status, 422)
      assert.include(short.text, "at least 10 characters")
      const own = yield* first.post("/account/password", { password: "pat pat pat", next: "/account" })
      assert.strictEqual(own.status, 422)
      const saved = yield* first.post("/account/password", { password, next: "/account" })
      assert.deepStrictEqual([saved.status, saved.location], [303, "/account?done=password"])
      assert.include((yield* mailFor("pat@example.com", 2)).subject, "changed")
      yield* first.post("/account/sign-out", {})
      assert.strictEqual(first.cookies.size, 0)
      assert.strictEqual((yield* first.get("/account")).location, "/sign-in?next=%2Faccount")

      const wrong = yield* first.post("/sign-in", {
        email: "pat@example.com",
        password: "nope nope nope",
        next: ""
      })
      assert.strictEqual(wrong.status, 401)
      assert.include(wrong.text, 'role="alert"')
      assert.isFalse(wrong.text.includes("nope nope"))
      const right = yield* first.post("/sign-in", {
        email: " PAT@Example.com ",
        password,
        next: "/account/password"
      })
      assert.deepStrictEqual([right.status, right.location], [303, "/account/password"])
      // The same letters as another keyboard makes them.
      const wide = yield* (yield* visitor).post("/sign-in", {
        email: "ｐat@example.com",
        password,
        next: ""
      })
      assert.strictEqual(wide.status, 303)
    })
  )

  it.effect("by JSON: the cookie is set, no token is shown, and the same refusals come as problems", () =>
    Effect.gen(function* () {
      const browser = yield* newcomer("json@example.com", password)
      const program = yield* visitor
      const plain = {}
      const made = yield* program.json(
        "POST",
        "/v1/auth/sign-in",
        { email: "json@example.com", password },
        plain
      )
      assert.strictEqual(made.status, 200)
      assert.deepStrictEqual(Object.keys(made.body).sort(), ["email", "expiresAt", "isNew", "name", "userId"])
      assert.strictEqual((yield* program.json("GET", "/v1/me")).body.userId, made.body.userId)
      const wrong = yield* program.json(
        "POST",
        "/v1/auth/sign-in",
        { email: "json@example.com", password: "x" },
        plain
      )
      assert.deepStrictEqual([wrong.status, wrong.body.code], [401, "wrong_credentials"])
      assert.deepStrictEqual(wrong.setCookies, [])
      const invalid = yield* program.json("POST", "/v1/auth/sign-in", { email: "x", pass: 1 }, plain)
      assert.strictEqual(invalid.status, 422)
      const dead = yield* program.json("POST", "/v1/auth/link/use", { token: "0".repeat(64) }, plain)
      assert.deepStrictEqual([dead.status, dead.body.code], [409, "link_dead"])
      assert.strictEqual(
        (yield* program.json("POST", "/v1/auth/link", { email: "json@example.com" }, plain)).status,
        202
      )
      const { token } = yield* mailFor("json@example.com", 3)
      const used = yield* program.json("POST", "/v1/auth/link/use", { token }, plain)
      assert.deepStrictEqual([used.status, used.body.isNew], [200, false])
      const changed = yield* program.json("PUT", "/v1/auth/password", {
        current: "wrong",
        password: "another good one"
      })
      assert.deepStrictEqual([changed.status, changed.body.code], [401, "wrong_credentials"])
      const weak = yield* program.json("PUT", "/v1/auth/password", {
        current: password,
        password: "aaaaaaaaaaaa"
      })
      assert.deepStrictEqual([weak.status, weak.body.errors[0].pointer], [422, "/password"])
      const done = yield* program.json("PUT", "/v1/auth/password", {
        current: password,
        password: "another good one"
      })
      assert.strictEqual(done.status, 200)
      // Every other session ended with the old password.
      assert.strictEqual((yield* browser.json("GET", "/v1/me")).status, 401)
      assert.strictEqual((yield* program.json("GET", "/v1/me")).status, 200)
      assert.deepStrictEqual((yield* program.json("GET", "/v1/auth/providers")).body, [])
    })
  )

  it.effect(
    "after a reset: the new password holds, the old one and every session do not, the link worked once",
    () =>
      Effect.gen(function* () {
        const email = "reset@example.com"
        const before = yield* newcomer(email, password)
        const stranger = yield* visitor
        const next = "/account/password?from=reset"
        const there = yield* stranger.get(`/sign-in?next=${encodeURIComponent(next)}`)
        assert.include(there.text, `href="/reset-password?next=${encodeURIComponent(next)}"`)
        const asked = yield* stranger.post("/reset-password", { email, next })
        assert.strictEqual(asked.location, "/check-mail")
        const { link, token, subject } = yield* mailFor(email, 3)
        assert.strictEqual(subject, "Choose a new password")
        assert.include((yield* stranger.get(link)).text, "New password")
        // A password that will not do leaves the link as it is.
        assert.strictEqual(
          (yield* stranger.post("/reset-password/new", { token, password: "short" })).status,
          422
        )
        const done = yield* stranger.post("/reset-password/new", {
          token,
          password: "completely other words"
        })
        assert.deepStrictEqual([done.status, done.location], [303, next])
        assert.strictEqual((yield* before.json("GET", "/v1/me")).status, 401)
        assert.strictEqual((yield* stranger.json("GET", "/v1/me")).status, 200)
        const out = yield* stranger.post("/account/sign-out", { next })
        assert.strictEqual(out.location, `/sign-in?next=${encodeURIComponent(next)}`)
        const away = yield* stranger.post("/account/sign-out", { next: "//evil.example" })
        assert.strictEqual(away.location, "/sign-in")
        const again = yield* stranger.post("/reset-password/new", {
          token,
          password: "yet another password"
        })
        assert.strictEqual(again.status, 410)
        const old = yield* (yield* visitor).post("/sign-in", { email, password, next: "" })
        assert.strictEqual(old.status, 401)
        const fresh = yield* (yield* visitor).post("/sign-in", {
          email,
          password: "completely other words",
          next: ""
        })
        assert.strictEqual(fresh.status, 303)
        assert.include((yield* mailFor(email, 4)).subject, "changed")
      })
  )

  it.effect(
    "one's own sessions are listed, ended one by one, and all at once; it counts with the next request",
    () =>
      Effect.gen(function* () {
        const email = "many@example.com"
        const laptop = yield* newcomer(email, password)
        const phone = yield* visitor
        const library = yield* visitor
        for (const one of [phone, library]) yield* one.post("/sign-in", { email, password, next: "" })
        const listed = yield* laptop.json("GET", "/v1/auth/sessions")
        assert.strictEqual(listed.body.length, 3)
        assert.strictEqual(listed.body.filter((one: { current: boolean }) => one.current).length, 1)
        assert.deepStrictEqual(listed.body.map((one: { method: string }) => one.method).sort(), [
          "link",
          "password",
          "password"
        ])
        const idOf = Effect.map(
          library.json("GET", "/v1/auth/sessions"),
          ({ body }) => body.find((one: { current: boolean }) => one.current).id as string
        )
        const ended = yield* laptop.post("/account/sessions/end", { id: yield* idOf })
        assert.strictEqual(ended.location, "/account?done=ended")
        assert.strictEqual((yield* library.json("GET", "/v1/me")).status, 401)
        assert.strictEqual((yield* phone.json("GET", "/v1/me")).status, 200)

        // Nobody ends a session of somebody else.
        const other = yield* newcomer("other@example.com")
        const mine = (yield* laptop.json("GET", "/v1/auth/sessions")).body[0].id
        assert.strictEqual((yield* other.json("DELETE", `/v1/auth/sessions/${mine}`)).status, 404)
        yield* other.post("/account/sessions/end", { id: mine })
        assert.strictEqual((yield* laptop.json("GET", "/v1/me")).status, 200)

        const out = yield* phone.json("POST", "/v1/auth/sign-out-everywhere", {})
        assert.deepStrictEqual([out.status, out.body.ended], [200, 2])
        for (const one of [laptop, phone]) assert.strictEqual((yield* one.json("GET", "/v1/me")).status, 401)
        assert.strictEqual((yield* other.json("GET", "/v1/me")).status, 200)
        yield* other.json("POST", "/v1/auth/sign-out", {})
        assert.strictEqual(other.cookies.size, 0)
      })
  )

  it.effect("more sessions than anybody needs end the ones unused for longest", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const email = "hoard@example.com"
      const first = yield* newcomer(email, password)
      const mine = `(select id from account where email = '${email}')`
      yield* sql(`insert into session (id, digest, user_id, expires_at, method, last_used_at)
          select gen_random_uuid(), sha256(i::text::bytea), ${mine}, now() + interval '1 day', 'password',
            now() - i * interval '1 minute' from generate_series(1, 120) i`)
      const last = yield* visitor
      yield* last.post("/sign-in", { email, password, next: "" })
      const [row] =
        yield* sql(`select count(*)::int as n, max(now() - last_used_at) < interval '100 minutes' as recent
          from session where user_id = ${mine}`)
      assert.deepStrictEqual(row, { n: 100, recent: true })
      for (const one of [first, last]) assert.strictEqual((yield* one.json("GET", "/v1/me")).status, 200)
    })
  )

  it.effect("a session lasts thirty days from its last use, and not a moment longer", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const browser = yield* newcomer("slide@example.com")
      const mine = "user_id = (select id from account where email = 'slide@example.com')"
      yield* sql(`update session set last_used_at = now() - interval '20 days',
          expires_at = now() + interval '10 days' where ${mine}`)
      assert.strictEqual((yield* browser.get("/account")).status, 200)
      const [row] = yield* sql(
        `select extract(day from expires_at - now())::int as days from session where ${mine}`
      )
      assert.isAtLeast(Number(row?.["days"]), 29)
      yield* sql(`update session set expires_at = now() - interval '1 second' where ${mine}`)
      assert.strictEqual((yield* browser.json("GET", "/v1/me")).status, 401)
      assert.strictEqual((yield* browser.get("/account")).status, 303)
    })
  )

  it.effect("an invited stranger signs up from the mail and joins; nobody else can, and nobody twice", () =>
    Effect.gen(function* () {
      const { session, url } = yield* Plane
      const owner = yield* visitor
      owner.cookies.set("svc_session", session)
      const invited = yield* owner.json("POST", "/v1/orgs/main/invitations", {
        email: "Guest@Example.com",
        role: "member"
      })
      assert.strictEqual(invited.status, 201)
      const mail = yield* mailFor("guest@example.com")
      assert.include(mail.text, `${url}/invitation?token=`)
      assert.notInclude(JSON.stringify(invited.body), mail.token)

      const guest = yield* visitor
      const seen = yield* guest.get(mail.link)
      assert.include(seen.text, "Main")
      assert.include(seen.text, "guest@example.com")
      const up = /href="(\/sign-up\?next=[^"]+)"/.exec(seen.text)?.[1]?.replaceAll("&amp;", "&") ?? ""
      const next = new URL(up, url).searchParams.get("next") ?? ""
      assert.strictEqual(next, mail.link)

      // Somebody else who has the link is told whose it is.
      const thief = yield* newcomer("thief@example.com")
      const refused = yield* thief.post("/invitation", { token: mail.token })
      assert.strictEqual(refused.status, 403)
      assert.include(refused.text, "another e-mail address")

      yield* guest.post("/sign-up", { name: "Guest", email: "guest@example.com", next })
      const { token } = yield* mailFor("guest@example.com", 2)
      const entered = yield* guest.post("/sign-in/link", { token })
      assert.strictEqual(entered.location, `/account/password?next=${encodeURIComponent(mail.link)}`)
      const joined = yield* guest.post("/invitation", { token: mail.token })
      assert.strictEqual(joined.location, "/account?done=joined")
      assert.strictEqual((yield* guest.json("GET", "/v1/orgs/main")).status, 200)
      assert.strictEqual((yield* guest.json("DELETE", "/v1/orgs/main")).status, 403)
      assert.strictEqual((yield* guest.post("/invitation", { token: mail.token })).status, 410)
      assert.strictEqual((yield* thief.json("GET", "/v1/orgs/main")).status, 404)
    })
  )

  it.effect("the first start's owner gets a session in a browser by a mailed link", () =>
    Effect.gen(function* () {
      const browser = yield* visitor
      yield* browser.post("/sign-in/by-mail", { email: "operator@localhost", next: "" })
      const { token } = yield* mailFor("operator@localhost")
      const entered = yield* browser.post("/sign-in/link", { token })
      assert.strictEqual(entered.location, "/account")
      const me = yield* browser.json("GET", "/v1/me")
      assert.deepStrictEqual(
        me.body.organizations.map((one: { slug: string; role: string }) => [one.slug, one.role]),
        [["main", "owner"]]
      )
    })
  )

  it.effect("two who use one link at once make one account and one session", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const browsers = [yield* visitor, yield* visitor, yield* visitor, yield* visitor]
      yield* browsers[0]!.post("/sign-up", { name: "Once", email: "once@example.com", next: "" })
      const { token } = yield* mailFor("once@example.com")
      const answers = yield* Effect.forEach(browsers, (one) => one.post("/sign-in/link", { token }), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(answers.map(({ status }) => status).sort(), [303, 410, 410, 410])
      const [row] =
        yield* sql(`select count(*)::int as sessions from session s join account a on a.id = s.user_id
          where a.email = 'once@example.com'`)
      assert.strictEqual(row?.["sessions"], 1)
    })
  )

  it.effect(
    "two links for one new address, used at once, make one account with one personal organization",
    () =>
      Effect.gen(function* () {
        const { sql } = yield* Plane
        const browsers = [yield* visitor, yield* visitor, yield* visitor]
        for (const one of browsers)
          yield* one.post("/sign-up", { name: "Twin", email: "twin@example.com", next: "" })
        const letters = yield* mailsFor("twin@example.com", 3)
        yield* Effect.forEach(letters, ({ token }, i) => browsers[i]!.post("/sign-in/link", { token }), {
          concurrency: "unbounded"
        })
        const [row] =
          yield* sql(`select count(distinct a.id)::int as accounts, count(distinct m.org_id)::int as orgs
          from account a join member m on m.user_id = a.id where a.email = 'twin@example.com'`)
        assert.deepStrictEqual([row?.["accounts"], row?.["orgs"]], [1, 1])
      })
  )
})
