import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { bucketsStandStill } from "#test/setup/rate-limits.ts"
import { makeRecording } from "#test/setup/recording.ts"
import { eventually } from "#test/setup/wait.ts"
import { mailFor, newcomer, visitor } from "./visitor.ts"

const password = "three words together"

layer(testPlane({ signUp: "invited", signInRateLimit: 10_000 }), { excludeTestServices: true })(
  "where only the invited sign up",
  (it) => {
    it.effect(
      "others get the same answers and no mail; the invited, and who has an account, get theirs",
      () =>
        Effect.gen(function* () {
          const { session, sql } = yield* Plane
          const owner = yield* visitor
          owner.cookies.set("svc_session", session)
          const stranger = yield* visitor
          assert.include((yield* stranger.get("/sign-up")).text, "were invited")
          const asked = yield* stranger.post("/sign-up", {
            name: "S",
            email: "stranger@example.com",
            next: ""
          })
          assert.deepStrictEqual([asked.status, asked.location], [303, "/check-mail"])
          assert.deepStrictEqual(
            yield* sql("select 1 from mail_outbox where recipient = 'stranger@example.com'"),
            []
          )

          const made = yield* owner.json("POST", "/v1/orgs/main/invitations", {
            email: "guest@example.com",
            role: "member"
          })
          const invited = yield* mailFor("guest@example.com")
          const guest = yield* visitor
          yield* guest.post("/sign-up", { name: "Guest", email: "guest@example.com", next: invited.link })
          const { token } = yield* mailFor("guest@example.com", 2)

          // An invitation that was taken back meanwhile lets nobody in.
          yield* owner.json("DELETE", `/v1/orgs/main/invitations/${made.body.id}`)
          assert.strictEqual((yield* guest.post("/sign-in/link", { token })).status, 410)
          yield* owner.json("POST", "/v1/orgs/main/invitations", {
            email: "guest@example.com",
            role: "member"
          })
          yield* guest.post("/sign-up", { name: "Guest", email: "guest@example.com", next: "" })
          const second = yield* mailFor("guest@example.com", 4)
          assert.strictEqual((yield* guest.post("/sign-in/link", { token: second.token })).status, 303)
          // With an account, no invitation is needed any more.
          yield* sql("update invitation set revoked_at = now()")
          yield* guest.post("/sign-in/by-mail", { email: "guest@example.com", next: "" })
          const third = yield* mailFor("guest@example.com", 5)
          assert.strictEqual((yield* guest.post("/sign-in/link", { token: third.token })).status, 303)
        })
    )
  }
)

layer(testPlane({ proxies: 1, signInRateLimit: 20 }), { excludeTestServices: true })(
  "behind a proxy",
  (it) => {
    it.effect("callers are told apart by what the proxy says, and cannot say it themselves", () =>
      Effect.gen(function* () {
        const { sql } = yield* Plane
        yield* bucketsStandStill
        const browser = yield* visitor
        const ask = (forwarded: string, i: number) =>
          Effect.map(
            browser.json(
              "POST",
              "/v1/auth/link",
              { email: `p${i}@example.com` },
              { "x-forwarded-for": forwarded }
            ),
            ({ status }) => status
          )
        const statuses: Array<number> = []
        // One caller who claims another address each time: the proxy appended the true one.
        for (let i = 0; i < 26; i++) statuses.push(yield* ask(`10.0.0.${i}, 203.0.113.7`, i))
        assert.include(statuses, 429)
        assert.strictEqual(yield* ask("203.0.113.8", 100), 202)
        // One customer has many IPv6 addresses, in one network.
        const six: Array<number> = []
        for (let i = 0; i < 26; i++) six.push(yield* ask(`2001:db8:1:2::${i.toString(16)}`, 200 + i))
        assert.include(six, 429)
        assert.strictEqual(yield* ask("2001:db8:1:3::1", 300), 202)
        yield* browser.json("GET", "/v1/me", undefined, { "x-forwarded-for": "10.9.9.9, 203.0.113.9" })
        // Refusals are written a moment later.
        const written = sql("select 1 from audit_log where address = '203.0.113.9'")
        yield* eventually("it is written", written, (rows) => rows.length > 0)
      })
    )
  }
)

const { traced, recording } = makeRecording()

layer(testPlane({ signInRateLimit: 10_000 }, {}, true).pipe(Layer.provide(recording)), {
  excludeTestServices: true
})("what asks for a recent proof", (it) => {
  it.effect("is done after the password was given again, or after signing in again", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const email = "idle@example.com"
      yield* newcomer(email, password)
      const browser = yield* visitor
      yield* browser.post("/sign-in", { email, password, next: "" })
      yield* browser.json("POST", "/v1/orgs", { name: "Team", slug: "idle-team" })
      const idle = sql(`update session set authenticated_at = now() - interval '13 hours'
          where user_id = (select id from account where email = '${email}')`)
      yield* idle
      const refused = yield* browser.json("DELETE", "/v1/orgs/idle-team")
      assert.deepStrictEqual([refused.status, refused.body.code], [403, "reauthentication_required"])
      const wrong = yield* browser.json("POST", "/v1/auth/prove-again", { password: "nope" })
      assert.deepStrictEqual([wrong.status, wrong.body.code], [401, "wrong_credentials"])
      assert.strictEqual((yield* browser.json("DELETE", "/v1/orgs/idle-team")).status, 403)
      const page = yield* browser.get("/account/prove?next=%2Faccount")
      assert.include(page.text, 'name="password"')
      const proved = yield* browser.post("/account/prove", { password, next: "/account" })
      assert.strictEqual(proved.location, "/account")
      assert.strictEqual((yield* browser.json("DELETE", "/v1/orgs/idle-team")).status, 200)

      // Without a password one signs in again: setting one is a way in for whoever holds the session.
      const passwordless = "bare@example.com"
      const bare = yield* newcomer(passwordless)
      yield* sql("update session set authenticated_at = now() - interval '16 minutes'")
      const path = `/account/prove?next=${encodeURIComponent("/account/password")}`
      assert.strictEqual((yield* bare.get("/account/password")).location, path)
      assert.strictEqual((yield* bare.post("/account/password", { password, next: "" })).location, path)
      const told = yield* bare.json("PUT", "/v1/auth/password", { password })
      assert.deepStrictEqual([told.status, told.body.code], [403, "reauthentication_required"])
      assert.include((yield* bare.get(path)).text, "/sign-in/by-mail?next=%2Faccount%2Fpassword")
      yield* bare.post("/sign-in/by-mail", { email: passwordless, next: "/account/password" })
      const { token } = yield* mailFor(passwordless, 2)
      assert.strictEqual((yield* bare.post("/sign-in/link", { token })).location, "/account/password")
      assert.strictEqual((yield* bare.post("/account/password", { password, next: "" })).status, 303)
    })
  )

  it.effect("and no trace holds what signs somebody in", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const email = "traced@example.com"
      const browser = yield* visitor
      browser.cookies.set("svc_session", session)
      yield* browser.json("POST", "/v1/orgs/main/invitations", { email, role: "member" })
      const invited = yield* mailFor(email)
      browser.cookies.clear()
      yield* browser.get(invited.link)
      yield* browser.post("/sign-up", { name: "T", email, next: invited.link })
      const link = yield* mailFor(email, 2)
      yield* browser.get(link.link)
      yield* browser.post("/sign-in/link", { token: link.token })
      yield* browser.json("POST", `/v1/invitations/${invited.token}/accept`, {})
      yield* browser.get("/v1/auth/oidc/none/callback?state=s&code=c0de-of-a-provider")
      assert.strictEqual((yield* browser.json("GET", "/v1/orgs/main")).status, 200)
      const cookie = browser.cookies.get("svc_session") ?? ""
      const all = JSON.stringify(traced.map(({ name, attributes }) => [name, [...attributes]]))
      assert.include(all, "/v1/orgs/main")
      for (const secret of [invited.token, link.token, cookie, session, "c0de-of-a-provider"]) {
        assert.isFalse(all.includes(secret), secret)
      }
    })
  )
})
