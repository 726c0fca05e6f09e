import * as http from "node:http"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { newSessionToken } from "#src/access/bootstrap.ts"
import { pagePaths } from "#src/api/page-paths.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { bucketsStandStill } from "#test/setup/rate-limits.ts"
import { eventually } from "#test/setup/wait.ts"
import { mailFor, mailsFor, newcomer, type Visitor, visitor } from "./visitor.ts"

const password = "three words together"
const cookieOf = (browser: Visitor) => browser.cookies.get("svc_session") ?? ""

layer(testPlane({ signInRateLimit: 10_000 }), { excludeTestServices: true })("sign-in under attack", (it) => {
  it.effect("the cookie is kept from scripts and from other sites; its token is nowhere in the store", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const email = "cookie@example.com"
      yield* newcomer(email, password)
      const browser = yield* visitor
      const { setCookies, headers } = yield* browser.post("/sign-in", { email, password, next: "" })
      assert.strictEqual(setCookies.length, 1)
      assert.match(setCookies[0]!, /^svc_session=svcs_[0-9a-f]{64}; /)
      for (const flag of [/; HttpOnly/, /; SameSite=Lax/, /; Path=\/(;|$)/, /; Max-Age=34560000/]) {
        assert.match(setCookies[0]!, flag)
      }
      // This one is served on loopback, without TLS.
      assert.notMatch(setCookies[0]!, /; Secure/)
      assert.notMatch(setCookies[0]!, /; Domain/i)
      assert.strictEqual(headers.get("cache-control"), "no-store")

      yield* browser.post("/reset-password", { email })
      yield* browser.post("/sign-in/by-mail", { email, next: "" })
      const letters = yield* mailsFor(email, 4)
      const secrets = [cookieOf(browser), password, ...letters.map(({ token }) => token)].filter(
        (one) => one !== ""
      )
      assert.isAtLeast(secrets.length, 5)
      const tables = yield* sql(
        "select relname from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace"
      )
      for (const table of tables) {
        const rows = yield* sql(`select t::text as row from "${table["relname"]}" t`)
        const dump = rows.map((row) => String(row["row"])).join("\n")
        for (const secret of secrets) {
          for (const form of [
            secret,
            Buffer.from(secret).toString("hex"),
            Buffer.from(secret).toString("base64")
          ]) {
            assert.isFalse(dump.includes(form), `${table["relname"]} holds a secret`)
          }
        }
      }
      const hashes = yield* sql("select hash from password")
      for (const { hash } of hashes) assert.match(String(hash), /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
    })
  )

  it.effect("a form from elsewhere, or from nobody knows where, does nothing", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const email = "csrf@example.com"
      const browser = yield* newcomer(email, password)
      const token = cookieOf(browser)
      const evil: ReadonlyArray<Record<string, string>> = [
        {},
        { origin: "https://evil.example" },
        { origin: "null" },
        { origin: `${url}.evil.example` },
        { origin: url, "sec-fetch-site": "cross-site" },
        { origin: url, "sec-fetch-site": "same-site" },
        { "sec-fetch-site": "none" }
      ]
      for (const headers of evil) {
        for (const [path, method] of pagePaths) {
          if (method !== "POST") continue
          const answer = yield* browser.post(
            path,
            { email, password, next: "", token: "0".repeat(64) },
            headers
          )
          assert.strictEqual(answer.status, 403, `${path} ${JSON.stringify(headers)}`)
          assert.deepStrictEqual(answer.setCookies, [])
        }
      }
      for (const headers of evil.slice(1)) {
        const entered = yield* browser.json("POST", "/v1/auth/sign-in", { email, password }, headers)
        assert.deepStrictEqual([entered.status, entered.body.code], [403, "cross_origin"])
      }
      // With the cookie even no word of where it comes from is too little.
      for (const headers of evil) {
        const out = yield* browser.json("POST", "/v1/auth/sign-out-everywhere", {}, headers)
        assert.strictEqual(out.status, 403)
      }
      // What a form of another site can send without asking is no JSON.
      const disguised = yield* browser.post("/v1/auth/sign-in", { email, password }, {})
      assert.strictEqual(disguised.status, 415)
      assert.strictEqual(cookieOf(browser), token)
      assert.strictEqual((yield* browser.json("GET", "/v1/me")).status, 200)
    })
  )

  it.effect("a session that somebody planted never becomes the visitor's; the one before ends", () =>
    Effect.gen(function* () {
      const { sql, tenant } = yield* Plane
      const email = "fixed@example.com"
      yield* newcomer(email, password)
      const browser = yield* visitor
      const planted = newSessionToken()
      browser.cookies.set("svc_session", planted)
      yield* browser.post("/sign-in", { email, password, next: "" })
      const first = cookieOf(browser)
      assert.notStrictEqual(first, planted)
      const thief = yield* visitor
      thief.cookies.set("svc_session", planted)
      assert.strictEqual((yield* thief.json("GET", "/v1/me")).status, 401)

      // Signing in again makes another one, and the first is dead.
      yield* browser.post("/sign-in", { email, password, next: "" })
      assert.notStrictEqual(cookieOf(browser), first)
      thief.cookies.set("svc_session", first)
      assert.strictEqual((yield* thief.json("GET", "/v1/me")).status, 401)

      // A planted session of the attacker's own account does not become the victim's account.
      const attacker = yield* tenant()
      browser.cookies.set("svc_session", attacker.owner)
      yield* browser.post("/sign-in", { email, password, next: "" })
      thief.cookies.set("svc_session", attacker.owner)
      assert.strictEqual((yield* thief.json("GET", "/v1/me")).status, 401)
      const [row] = yield* sql(`select count(*)::int as n from session s join account a on a.id = s.user_id
          where a.email = '${attacker.slug}@example.test'`)
      assert.strictEqual(row?.["n"], 0)
    })
  )

  it.effect("links in mail are made of configuration, whatever the request says its host is", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const email = "host@example.com"
      const { port } = new URL(url)
      const send = (headers: Record<string, string>) =>
        Effect.promise(
          () =>
            new Promise<number>((resolve, reject) => {
              const body = JSON.stringify({ email })
              const request = http.request(
                {
                  host: "127.0.0.1",
                  port,
                  method: "POST",
                  path: "/v1/auth/password-reset",
                  headers: { "content-type": "application/json", "content-length": body.length, ...headers }
                },
                (response) => {
                  response.resume()
                  response.on("end", () => resolve(response.statusCode ?? 0))
                }
              )
              request.on("error", reject)
              request.end(body)
            })
        )
      yield* newcomer(email)
      assert.strictEqual(yield* send({ host: "evil.example" }), 421)
      assert.strictEqual(yield* send({ host: `127.0.0.1:${port}.evil.example` }), 421)
      assert.strictEqual(
        yield* send({
          host: `localhost:${port}`,
          "x-forwarded-host": "evil.example",
          forwarded: "host=evil.example"
        }),
        202
      )
      const { text } = yield* mailFor(email, 2)
      assert.include(text, `${url}/reset-password/new?token=`)
      assert.notInclude(text, "evil")
      assert.notInclude(text, "localhost")
    })
  )

  it.effect("nobody is sent elsewhere after signing in", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      // Tries of one password are limited, so two take turns.
      const emails = ["next@example.com", "next2@example.com"]
      for (const email of emails) yield* newcomer(email, password)
      const hostile = [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n//evil.example",
        "///evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        " /account",
        "evil.example",
        "/account\r\nset-cookie: a=b",
        "/%0d%0ax: y\u0000",
        "/".padEnd(3_000, "a")
      ]
      for (const [i, next] of hostile.entries()) {
        const browser = yield* visitor
        const email = emails[i % 2] ?? ""
        const entered = yield* browser.post("/sign-in", { email, password, next })
        assert.strictEqual(entered.location, "/account", JSON.stringify(next))
        // Signed in already: the page sends on at once.
        const on = yield* browser.get(`/sign-in?next=${encodeURIComponent(next)}`)
        assert.strictEqual(on.location, "/account", JSON.stringify(next))
      }
      const browser = yield* visitor
      const fine = yield* browser.post("/sign-in", {
        email: emails[0] ?? "",
        password,
        next: "/invitation?token=a&b=%2F"
      })
      assert.strictEqual(new URL(fine.location ?? "", url).origin, url)
      assert.strictEqual(fine.location, "/invitation?token=a&b=%2F")
    })
  )

  it.effect("answers and work tell nobody whether an address has an account", () =>
    Effect.gen(function* () {
      const { sql, metricsUrl } = yield* Plane
      const known = "known@example.com"
      yield* newcomer(known, password)
      const browser = yield* visitor
      const shape = (seen: { status: number; text: string; headers: Headers }, email: string) => ({
        status: seen.status,
        text: seen.text.replaceAll(email, "?").replace(/"requestId":"[^"]+"/, ""),
        fields: [...seen.headers]
          .filter(([name]) => !["date", "x-request-id", "content-length"].includes(name))
          .sort()
      })
      const unknown = "unknown@example.com"
      const passwordless = "passwordless@example.com"
      yield* newcomer(passwordless)
      for (const attempt of [
        (email: string) => browser.post("/sign-in", { email, password: "a wrong password", next: "" }),
        (email: string) => browser.json("POST", "/v1/auth/sign-in", { email, password: "a wrong password" }),
        (email: string) => browser.json("POST", "/v1/auth/link", { email }),
        (email: string) => browser.json("POST", "/v1/auth/password-reset", { email }),
        (email: string) => browser.post("/reset-password", { email })
      ]) {
        const expected = shape(yield* attempt(known), known)
        for (const email of [unknown, passwordless]) {
          assert.deepStrictEqual(shape(yield* attempt(email), email), expected)
        }
      }
      // A reset is mailed to accounts only; a link goes to whoever reads the address.
      const mails = yield* sql(`select template from mail_outbox where recipient = '${unknown}'`)
      assert.deepStrictEqual(mails, [{ template: "sign_in" }])

      // Hashing takes nearly all of the time: it is done for everybody, or time would tell.
      const hashes = Effect.promise(async () => {
        const text = await (await fetch(`${metricsUrl}/metrics`)).text()
        return Number(/^svc_password_hashes_total(?:\{[^}]*\})? (\d+)/m.exec(text)?.[1])
      })
      for (const email of [known, unknown, passwordless, "nobody@example.com"]) {
        const before = yield* hashes
        yield* browser.json("POST", "/v1/auth/sign-in", { email, password: "a wrong password" })
        assert.strictEqual(yield* hashes, before + 1, email)
      }
    })
  )

  it.effect("a mailbox is filled by nobody: a few mails an hour for each address, whatever is asked", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const email = "flood@example.com"
      const browser = yield* visitor
      for (let i = 0; i < 12; i++) {
        const answer = yield* browser.json("POST", "/v1/auth/link", { email })
        assert.strictEqual(answer.status, 202)
      }
      const [row] = yield* sql(`select count(*)::int as n from mail_outbox where recipient = '${email}'`)
      assert.strictEqual(row?.["n"], 5)
    })
  )

  it.effect(
    "tries of one person's password are limited from wherever they come; a link works meanwhile",
    () =>
      Effect.gen(function* () {
        const email = "guessed@example.com"
        yield* newcomer(email, password)
        yield* bucketsStandStill
        const browser = yield* visitor
        const statuses: Array<number> = []
        for (let i = 0; i < 14; i++) {
          const tried = yield* browser.post("/sign-in", {
            email: i % 2 === 0 ? email : email.toUpperCase(),
            password: `guess ${i}`,
            next: ""
          })
          statuses.push(tried.status)
          if (tried.status === 429) assert.isAtLeast(Number(tried.headers.get("retry-after")), 1)
        }
        assert.deepStrictEqual(statuses, [...Array(10).fill(401), ...Array(4).fill(429)])
        // The right password does not get through either, so that a guess tells nothing.
        assert.strictEqual((yield* browser.post("/sign-in", { email, password, next: "" })).status, 429)
        yield* browser.post("/sign-in/by-mail", { email, next: "" })
        const { token } = yield* mailFor(email, 3)
        assert.strictEqual((yield* browser.post("/sign-in/link", { token })).status, 303)
      })
  )

  it.effect(
    "a link that is too old does nothing; one for signing in resets no password and the reverse",
    () =>
      Effect.gen(function* () {
        const { sql } = yield* Plane
        const email = "old@example.com"
        yield* newcomer(email)
        const browser = yield* visitor
        yield* browser.post("/sign-in/by-mail", { email, next: "" })
        const link = yield* mailFor(email, 2)
        yield* browser.post("/reset-password", { email })
        const reset = yield* mailFor(email, 3)
        assert.strictEqual((yield* browser.post("/sign-in/link", { token: reset.token })).status, 410)
        assert.strictEqual(
          (yield* browser.post("/reset-password/new", { token: link.token, password })).status,
          410
        )
        yield* sql("update mail_token set expires_at = now() - interval '1 second'")
        assert.strictEqual((yield* browser.get(link.link)).status, 410)
        assert.strictEqual((yield* browser.post("/sign-in/link", { token: link.token })).status, 410)
        assert.strictEqual(
          (yield* browser.post("/reset-password/new", { token: reset.token, password })).status,
          410
        )
        assert.strictEqual(cookieOf(browser), "")
      })
  )

  it.effect(
    "pages keep to themselves: strict policy, no script, no frame, nothing stored; text stays text",
    () =>
      Effect.gen(function* () {
        const email = "xss@example.com"
        const markup = `<script>alert(1)</script>"'><img src=x>`
        const browser = yield* visitor
        yield* browser.post("/sign-up", { name: markup, email, next: "" })
        const { token } = yield* mailFor(email)
        yield* browser.post("/sign-in/link", { token })
        const pages = [
          "/account",
          "/account/password",
          "/account/prove",
          "/sign-up",
          "/reset-password",
          "/sign-in/by-mail",
          "/check-mail",
          `/sign-up?next=${encodeURIComponent(`/a?${markup}`)}`,
          `/account/password?next=${encodeURIComponent('/a"onclick="x')}`,
          `/account?done=${encodeURIComponent(markup)}`,
          `/sign-in/link?token=${encodeURIComponent(markup)}`,
          `/invitation?token=${encodeURIComponent(markup)}`,
          "/v1/auth/oidc/none",
          "/v1/auth/oidc/none/callback?code=1&state=2"
        ]
        for (const target of pages) {
          const seen = yield* browser.get(target)
          const policy = seen.headers.get("content-security-policy") ?? ""
          for (const rule of [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "base-uri 'none'"
          ]) {
            assert.include(policy, rule, target)
          }
          assert.notInclude(policy, "unsafe")
          assert.notInclude(policy, "script-src")
          assert.strictEqual(seen.headers.get("cache-control"), "no-store")
          assert.strictEqual(seen.headers.get("referrer-policy"), "same-origin")
          assert.strictEqual(seen.headers.get("x-content-type-options"), "nosniff")
          assert.notInclude(seen.text, "<script", target)
          assert.notInclude(seen.text, "<img", target)
          assert.notInclude(seen.text, '"onclick', target)
        }
        const tried = yield* (yield* visitor).post("/sign-in", {
          email: markup,
          password: markup,
          next: markup
        })
        assert.strictEqual(tried.status, 422)
        assert.notInclude(tried.text, "<script")
      })
  )

  it.effect("hostile input is refused and never breaks anything", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const browser = yield* visitor
      const hostile = [
        "\0",
        "\ud800@x.example",
        "a@b",
        "' or 1=1 --",
        "x".repeat(9_000),
        "a@x.example\r\nbcc: b@x.example",
        "%00",
        "{}"
      ]
      for (const value of hostile) {
        for (const [path, method] of pagePaths) {
          if (method !== "POST") continue
          const seen = yield* browser.post(path, {
            email: value,
            password: value,
            token: value,
            next: value,
            id: value,
            name: value,
            current: value
          })
          assert.isBelow(seen.status, 500, `${path} ${JSON.stringify(value)}`)
        }
        for (const path of ["sign-in", "link", "link/use", "password-reset", "password-reset/use"]) {
          const body = { email: value, password: value, token: value }
          const seen = yield* browser.json("POST", `/v1/auth/${path}`, body)
          assert.isBelow(seen.status, 500, `${path} ${JSON.stringify(value)}`)
        }
        browser.cookies.set("svc_session", encodeURIComponent(value.toWellFormed()))
        browser.cookies.set("svc_oidc", encodeURIComponent(value.toWellFormed()))
        // Node itself refuses header fields that are too long.
        assert.include([303, 431], (yield* browser.get("/account")).status)
        assert.isBelow((yield* browser.get("/v1/auth/oidc/none/callback?code=1")).status, 500)
        browser.cookies.clear()
      }
      const large = yield* browser.post("/sign-in", {
        email: "a@x.example",
        password: "x".repeat(100_000),
        next: ""
      })
      assert.strictEqual(large.status, 400)
      const wrongType = yield* browser.json("POST", "/sign-in", { email: "a@x.example" })
      assert.strictEqual(wrongType.status, 415)
      for (const raw of ['{"email":', "[]", "null", "1"]) {
        const seen = yield* call("POST", "/v1/auth/sign-in", { raw, token: null })
        assert.include([400, 422], seen.status, raw)
      }
      for (const [path, methods] of Map.groupBy(pagePaths, ([path]) => path)) {
        const known = methods.map(([, method]): string => method)
        for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
          if (known.includes(method)) continue
          const seen = yield* call(method, path.replace(":provider", "x"), { token: null })
          assert.strictEqual(seen.status, 405, `${method} ${path}`)
          for (const one of known) assert.include(seen.headers.get("allow") ?? "", one)
        }
      }
    })
  )

  it.effect("what happened is in the audit log, without what was typed", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const email = "audited@example.com"
      const browser = yield* newcomer(email, password)
      yield* browser.post("/sign-in", { email, password: "a wrong password", next: "" })
      yield* browser.post("/account/sign-out", {})
      const mine = `principal = 'user:' || (select id from account where email = '${email}')`
      // Refusals are written a moment later.
      const written = sql(`select 1 from audit_log where ${mine} and outcome = 401`)
      yield* eventually("the refusal is written", written, (rows) => rows.length > 0)
      const rows = yield* sql(
        `select operation, credential, outcome, address from audit_log where ${mine} order by id`
      )
      const lines = rows.map((row) => `${row["operation"]} ${row["credential"]} ${row["outcome"]}`)
      for (const line of [
        "auth.signUp link 200",
        "auth.setPassword session 200",
        "auth.signIn link 200",
        "auth.signIn none 401",
        "sessions.end session 200"
      ]) {
        assert.include(lines, line)
      }
      for (const row of rows) assert.strictEqual(row["address"], "127.0.0.1")
    })
  )
})

layer(testPlane({ signInRateLimit: 20 }), { excludeTestServices: true })(
  "an address that tries too often",
  (it) => {
    it.effect("is told when to come back, whatever it tries; requests with a session are not held up", () =>
      Effect.gen(function* () {
        const { session } = yield* Plane
        yield* bucketsStandStill
        const browser = yield* visitor
        const answers: Array<{ status: number; headers: Headers }> = []
        for (let i = 0; i < 30; i++) {
          const email = `nobody${i}@example.com`
          answers.push(
            i % 2 === 0
              ? yield* browser.post("/sign-in", { email, password: "some wrong words", next: "" })
              : yield* browser.json("POST", "/v1/auth/link", { email })
          )
        }
        const refused = answers.filter(({ status }) => status === 429)
        assert.deepStrictEqual([answers.length - refused.length, refused.length], [20, 10])
        for (const { headers } of refused) assert.isAtLeast(Number(headers.get("retry-after")), 1)
        browser.cookies.set("svc_session", session)
        assert.strictEqual((yield* browser.json("GET", "/v1/me")).status, 200)
      })
    )
  }
)

layer(testPlane({ publicUrl: "https://svc.example" }), { excludeTestServices: true })("behind TLS", (it) => {
  it.effect("the cookie is sent over TLS only, and links lead to the public name", () =>
    Effect.gen(function* () {
      const browser = yield* visitor
      yield* browser.post("/sign-up", { name: "Tess", email: "tess@example.com", next: "" })
      const { text, token } = yield* mailFor("tess@example.com")
      assert.include(text, "https://svc.example/sign-in/link?token=")
      const { setCookies } = yield* browser.post("/sign-in/link", { token })
      assert.match(setCookies[0] ?? "", /; Secure/)
    })
  )
})
