import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { freePort } from "#test/setup/postgres.ts"
import { clientId, clientSecret, identityProvider, type Known, passProvider } from "./provider.ts"
import { newcomer, type Visitor, visitor } from "./visitor.ts"

const port = await freePort()
const issuer = `http://127.0.0.1:${port}`
const start = "/v1/auth/oidc/test"
const configured = (id: string, secret: string) => ({
  id,
  name: "Test & Co",
  issuer,
  clientId,
  clientSecret: Redacted.make(secret)
})

const fixture = testPlane({
  signInRateLimit: 10_000,
  oidcProviders: [configured("test", clientSecret), configured("wrong", "not the secret of the client")]
})

layer(fixture, { excludeTestServices: true })("OpenID Connect", (it) => {
  const provider = Effect.flatMap(Plane, ({ url }) => identityProvider(port, `${url}${start}/callback`))
  const path = (target: string) => new URL(target).pathname + new URL(target).search

  /** From our sign-in page through the provider to the address it sends back to. */
  const leave = Effect.fn(function* (browser: Visitor, next = "") {
    const left = yield* browser.get(`${start}?next=${encodeURIComponent(next)}`)
    assert.strictEqual(left.status, 303, left.text)
    const back = yield* Effect.promise(() => passProvider(left.location ?? "", issuer))
    return { left, back: path(back) }
  })
  const signIn = Effect.fn(function* (browser: Visitor, next?: string) {
    const { back } = yield* leave(browser, next)
    return yield* browser.get(back)
  })
  const me = (browser: Visitor) =>
    Effect.map(browser.json("GET", "/v1/me"), ({ status, body }) => ({ status, body }))

  it.effect(
    "signs up whoever is new, and knows them again by the provider's subject, not by their address",
    () =>
      Effect.gen(function* () {
        const idp = yield* provider
        const { sql, url } = yield* Plane
        const browser = yield* visitor
        const page = yield* browser.get("/sign-in")
        assert.include(page.text, 'href="/v1/auth/oidc/test"')
        assert.include(page.text, "Sign in with Test &amp; Co")
        const listed = yield* browser.json("GET", "/v1/auth/providers")
        assert.deepStrictEqual(listed.body[0], { id: "test", name: "Test & Co", url: `${url}${start}` })

        idp.who = { sub: "s1", email: "Olga@Example.com", name: "Olga" }
        const { left, back } = yield* leave(browser, "/account/password")
        const asked = new URL(left.location ?? "")
        assert.strictEqual(asked.searchParams.get("code_challenge_method"), "S256")
        for (const name of ["state", "nonce", "code_challenge"]) {
          assert.match(asked.searchParams.get(name) ?? "", /^[\w-]{40,}$/, name)
        }
        assert.match(left.setCookies[0] ?? "", /^svc_oidc=.*; HttpOnly.*; SameSite=Lax/)
        const entered = yield* browser.get(back)
        assert.deepStrictEqual([entered.status, entered.location], [303, "/account/password"])
        assert.isFalse(browser.cookies.has("svc_oidc"))
        const first = yield* me(browser)
        assert.strictEqual(first.body.organizations.length, 1)
        const [account] = yield* sql("select email, name from account where email = 'olga@example.com'")
        assert.deepStrictEqual(account, { email: "olga@example.com", name: "Olga" })

        const later = yield* visitor
        idp.who = { sub: "s1", email: "olga.new@example.com", name: "Olga" }
        yield* signIn(later)
        assert.strictEqual((yield* me(later)).body.userId, first.body.userId)
        // Her old address in the hands of somebody else there is somebody else here, who cannot take it.
        const heir = yield* visitor
        idp.who = { sub: "s2", email: "someone@example.com" }
        yield* signIn(heir)
        assert.notStrictEqual((yield* me(heir)).body.userId, first.body.userId)
        const listedSessions = yield* later.json("GET", "/v1/auth/sessions")
        assert.include(
          listedSessions.body.map((one: { method: string }) => one.method),
          "oidc:test"
        )
      })
  )

  it.effect(
    "is the account of the same address, if the provider vouches for it; if it does not, nothing is made",
    () =>
      Effect.gen(function* () {
        const idp = yield* provider
        const { sql } = yield* Plane
        const mailed = yield* newcomer("both@example.com")
        const own = (yield* me(mailed)).body.userId
        for (const unproved of [
          { sub: "eve", email: "both@example.com", verified: false },
          { sub: "eve2" },
          { sub: "eve3", email: "fresh@example.com", verified: false }
        ] satisfies ReadonlyArray<Known>) {
          const eve = yield* visitor
          idp.who = unproved
          const refused = yield* signIn(eve)
          assert.strictEqual(refused.status, 400)
          assert.include(refused.text, "by mail instead")
          assert.strictEqual((yield* me(eve)).status, 401)
        }
        assert.deepStrictEqual(yield* sql("select 1 from account where email = 'fresh@example.com'"), [])
        const browser = yield* visitor
        idp.who = { sub: "both", email: "BOTH@example.com" }
        yield* signIn(browser)
        assert.strictEqual((yield* me(browser)).body.userId, own)
      })
  )

  it.effect("the answer is good once, in the browser that asked, for a short time, unaltered", () =>
    Effect.gen(function* () {
      const idp = yield* provider
      idp.who = { sub: "once", email: "once@example.com" }
      const browser = yield* visitor
      const { back } = yield* leave(browser)
      const flow = browser.cookies.get("svc_oidc") ?? ""

      // Another browser, with nothing or with a flow of its own: signing a victim in as the attacker.
      const other = yield* visitor
      assert.strictEqual((yield* other.get(back)).status, 400)
      yield* leave(other)
      assert.strictEqual((yield* other.get(back)).status, 400)
      assert.isFalse(other.cookies.has("svc_session"))

      const altered = yield* visitor
      for (const value of [flow.slice(0, -4), `${flow.slice(0, -2)}AA`, flow.toUpperCase(), "k1.x", ""]) {
        altered.cookies.set("svc_oidc", value)
        assert.strictEqual((yield* altered.get(back)).status, 400)
      }
      altered.cookies.set("svc_oidc", flow)
      const bad = new URL(back, "http://x")
      bad.searchParams.set("state", "another")
      assert.strictEqual((yield* altered.get(bad.pathname + bad.search)).status, 400)
      // The flow of one provider is none of another's.
      assert.strictEqual((yield* altered.get(back.replace("/test/", "/wrong/"))).status, 400)
      assert.isFalse(altered.cookies.has("svc_session"))

      assert.strictEqual((yield* browser.get(back)).status, 303)
      const replay = yield* visitor
      replay.cookies.set("svc_oidc", flow)
      assert.strictEqual((yield* replay.get(back)).status, 400)
      assert.isFalse(replay.cookies.has("svc_session"))
    })
  )

  it.effect("nobody is sent elsewhere afterwards; who declines is told so", () =>
    Effect.gen(function* () {
      const idp = yield* provider
      idp.who = { sub: "next", email: "next@example.com" }
      for (const next of ["https://evil.example/", "//evil.example", "/\\evil.example"]) {
        const entered = yield* signIn(yield* visitor, next)
        assert.strictEqual(entered.location, "/account", next)
      }
      idp.who = undefined
      const declined = yield* signIn(yield* visitor)
      assert.strictEqual(declined.status, 400)
      assert.include(declined.text, "did not let Test &amp; Co sign you in")
    })
  )

  it.effect("a provider that is down or unknown breaks nothing and signs nobody in", () =>
    Effect.gen(function* () {
      const browser = yield* visitor
      assert.strictEqual((yield* browser.get("/v1/auth/oidc/none")).status, 400)
      const idp = yield* provider
      idp.who = { sub: "down", email: "down@example.com" }
      const { back } = yield* leave(browser)
      yield* idp.stop
      const failed = yield* browser.get(back)
      assert.strictEqual(failed.status, 400)
      assert.notInclude(failed.text, "ECONNREFUSED")
      assert.isFalse(browser.cookies.has("svc_session"))
      assert.strictEqual((yield* browser.get("/sign-in")).status, 200)
    })
  )
})
