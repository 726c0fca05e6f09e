import { createHmac } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Gate, type GatedRequest } from "#src/edge/agent/Gate.ts"
import { ticketKey } from "#src/edge/ticket-key.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { signed } from "#src/outbound/signature.ts"
import { Db } from "#src/store/Db.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import * as gate from "#src/visitors/gate.ts"
import { Visits } from "#src/visitors/Visits.ts"
import { challenge, makePerson, makeSite, state, world } from "./world.ts"

type Site = Effect.Success<ReturnType<typeof makeSite>>

const services = gate.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(Invocations.layer, PlatformSecrets.layer)),
  Layer.provideMerge(world)
)

/** The claims of a JWT whose signature holds. */
const claimsOf = (jwt: string, key: Redacted.Redacted) => {
  const [header = "", claims = "", mac] = jwt.split(".")
  const expected = createHmac("sha256", Redacted.value(key)).update(`${header}.${claims}`).digest("base64url")
  assert.strictEqual(mac, expected)
  assert.deepStrictEqual(JSON.parse(Buffer.from(header, "base64url").toString()), {
    alg: "HS256",
    typ: "JWT"
  })
  return JSON.parse(Buffer.from(claims, "base64url").toString())
}

const html = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" }

/** Runs at this time by the process' clock; the store has its own. */
const at = Effect.fnUntraced(function* <A, E, R>(ms: number, self: Effect.Effect<A, E, R>) {
  const real = yield* Clock.Clock
  const moved = {
    ...real,
    sleep: (duration: Parameters<typeof real.sleep>[0]) => real.sleep(duration),
    currentTimeMillisUnsafe: () => ms,
    currentTimeMillis: Effect.succeed(ms),
    currentTimeNanosUnsafe: () => real.currentTimeNanosUnsafe(),
    currentTimeNanos: real.currentTimeNanos
  }
  return yield* Effect.provideService(self, Clock.Clock, moved)
})
const began = 1_800_000_000_500

layer(services, { excludeTestServices: true })("the gate", (it) => {
  const request = (
    { orgId, environmentUid, host }: Site,
    about: Partial<GatedRequest> & { readonly sent?: string } = {}
  ): GatedRequest => ({
    method: "GET",
    url: "/cart?step=2",
    host,
    client: "192.0.2.1",
    scheme: "https",
    headers: {},
    upgrade: false,
    orgId,
    environmentUid,
    access: "authenticated",
    body: (most) =>
      Effect.succeed((about.sent ?? "").length > most ? undefined : Buffer.from(about.sent ?? "")),
    ...about
  })
  const judged = Effect.fnUntraced(function* (
    site: Site,
    about?: Partial<GatedRequest> & { readonly sent?: string }
  ) {
    return yield* (yield* Gate).judge(request(site, about))
  })
  const answered = Effect.fnUntraced(function* (site: Site, about?: Partial<GatedRequest>) {
    const result = yield* judged(site, about)
    if (result._tag !== "Answer") return assert.fail("it was let through")
    const headers = result.headers ?? {}
    assert.strictEqual(headers["cache-control"], "no-store")
    return { status: result.status, headers }
  })
  const back = Effect.fnUntraced(function* (site: Site, code: string, about: Partial<GatedRequest> = {}) {
    const headers = { cookie: `a=b; __Host-svc_state=${state}`, ...html }
    const url = `/.svc/access?code=${code}`
    return yield* (yield* Gate).own(request(site, { url, headers, ...about }))
  })
  const codeFor = Effect.fnUntraced(function* (site: Site, returnPath = "/cart?step=2") {
    const person = yield* makePerson()
    const visits = yield* Visits
    const code = yield* visits.issueCode(person, { host: site.host, challenge, returnPath })
    return { person, code: Redacted.value(Option.getOrThrow(code)) }
  })
  const cookiesOf = (fields: string | ReadonlyArray<string> | undefined) =>
    new Map(
      [fields ?? []].flat().map((field) => {
        const [pair = "", ...attributes] = field.split("; ")
        const at = pair.indexOf("=")
        return [pair.slice(0, at), { value: pair.slice(at + 1), attributes: attributes.join("; ") }] as const
      })
    )

  it.effect("sends a browser to sign in, with its path and a state that it keeps", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("authenticated")
      const left = yield* answered(site, { headers: html })
      assert.strictEqual(left.status, 302)
      const to = new URL(String(left.headers["location"]))
      assert.strictEqual(to.origin + to.pathname, "http://127.0.0.1:8787/access")
      assert.strictEqual(to.searchParams.get("host"), site.host)
      assert.strictEqual(to.searchParams.get("return"), "/cart?step=2")
      const kept = cookiesOf(left.headers["set-cookie"]).get("__Host-svc_state")
      assert.strictEqual(kept?.attributes, "Path=/; Max-Age=1800; Secure; HttpOnly; SameSite=Lax")
      assert.notInclude(to.href, kept?.value ?? "")
      // Another tab of the same browser.
      const cookie = `__Host-svc_state=${kept?.value}`
      const second = yield* answered(site, { headers: { ...html, cookie }, url: "//evil.test/" })
      const again = new URL(String(second.headers["location"]))
      assert.strictEqual(again.searchParams.get("state"), to.searchParams.get("state"))
      assert.strictEqual(again.searchParams.get("return"), "/")
      // What is no state of ours is not taken up.
      const junk = yield* answered(site, { headers: { ...html, cookie: "__Host-svc_state=1" } })
      assert.notStrictEqual(cookiesOf(junk.headers["set-cookie"]).get("__Host-svc_state")?.value, "1")
    })
  )

  it.effect("tells programs with 401, without a redirect", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("authenticated")
      const programs: ReadonlyArray<Partial<GatedRequest>> = [
        {},
        { headers: { accept: "*/*" } },
        { headers: { accept: "application/json" } },
        { method: "POST", headers: html },
        { method: "PUT", headers: html },
        { method: "DELETE", headers: html },
        { headers: { ...html, "sec-fetch-mode": "cors" } },
        { headers: { ...html, "sec-fetch-mode": "no-cors" } },
        { headers: { ...html, "sec-fetch-mode": "websocket", upgrade: "websocket" }, upgrade: true },
        { method: "OPTIONS", headers: { origin: "https://a.test", "access-control-request-method": "PUT" } },
        { method: "OPTIONS", headers: html }
      ]
      for (const program of programs) {
        const { status, headers } = yield* answered(site, program)
        assert.strictEqual(status, 401, JSON.stringify(program))
        assert.isUndefined(headers["location"])
        assert.isUndefined(headers["set-cookie"])
        assert.isUndefined(headers["access-control-allow-origin"])
        assert.strictEqual(headers["www-authenticate"], 'Svc-Access realm="http://127.0.0.1:8787"')
      }
      const navigations: ReadonlyArray<Partial<GatedRequest>> = [
        { headers: html },
        { method: "HEAD", headers: html },
        { headers: { "sec-fetch-mode": "navigate" } }
      ]
      for (const navigation of navigations)
        assert.strictEqual((yield* answered(site, navigation)).status, 302)
    })
  )

  it.effect("lets the browser in that comes back with a code, once, with a ticket for five minutes", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("authenticated")
      const { person, code } = yield* codeFor(site)
      const entered = yield* at(began, back(site, code))
      assert.strictEqual(entered.status, 303)
      assert.strictEqual(entered.headers?.["location"], "/cart?step=2")
      assert.strictEqual(entered.headers?.["cache-control"], "no-store")
      assert.strictEqual(entered.headers?.["referrer-policy"], "no-referrer")
      const cookies = cookiesOf(entered.headers?.["set-cookie"])
      const [ticket, visit] = [cookies.get("__Host-svc_access"), cookies.get("__Host-svc_visitor")]
      assert.strictEqual(ticket?.attributes, "Path=/; Max-Age=300; Secure; HttpOnly; SameSite=Lax")
      assert.strictEqual(visit?.attributes, "Path=/; Max-Age=86400; Secure; HttpOnly; SameSite=Lax")
      // Another tab of this browser may be on its way with the same state.
      assert.isFalse(cookies.has("__Host-svc_state"))
      const other_ = yield* codeFor(site)
      assert.strictEqual((yield* back(site, other_.code)).status, 303)
      const { u, ...claims } = claimsOf(ticket?.value ?? "", yield* ticketKey)
      assert.deepStrictEqual(claims, { h: site.host, e: site.environmentUid, exp: 1_800_000_300 })
      const [secret] = (yield* (yield* Invocations).target(site.orgId, site.environmentUid)).secrets
      assert.deepStrictEqual(claimsOf(u, secret ?? assert.fail("no secret")), {
        sub: person.userId,
        email: person.email,
        host: site.host,
        iat: 1_800_000_000,
        exp: 1_800_000_300
      })

      const again = yield* back(site, code)
      assert.strictEqual(again.status, 400)
      assert.isUndefined(again.headers?.["set-cookie"])
      assert.strictEqual(again.headers?.["x-frame-options"], "DENY")

      // Later any request is let through, with a fresh ticket.
      const cookie = `a=b; __Host-svc_access=old; __Host-svc_visitor=${visit?.value}; c="d"`
      for (const about of [{}, { method: "POST" }, { upgrade: true }, { method: "OPTIONS" }]) {
        const renewed = yield* at(began + 600_000, judged(site, { ...about, headers: { cookie } }))
        if (renewed._tag !== "Forward") return assert.fail("it was not let through")
        const [field] = renewed.setCookies ?? []
        const fresh = cookiesOf(field).get("__Host-svc_access")?.value ?? ""
        assert.strictEqual(claimsOf(fresh, yield* ticketKey).exp, 1_800_000_900)
        assert.strictEqual(
          renewed.cookie,
          `a=b; __Host-svc_visitor=${visit?.value}; c="d"; __Host-svc_access=${fresh}`
        )
      }
      // Of two nobody knows whose they are.
      const twice = yield* answered(site, { headers: { cookie: `${cookie}; __Host-svc_visitor=x` } })
      assert.strictEqual(twice.status, 401)
      // Not on another host, and not after the session has ended.
      const other = yield* makeSite("authenticated")
      assert.strictEqual((yield* answered(other, { headers: { cookie } })).status, 401)
      yield* (yield* Db).engine`delete from session where id = ${person.id}`
      assert.strictEqual((yield* answered(site, { headers: { cookie } })).status, 401)
      assert.strictEqual((yield* answered(site, { headers: { cookie, ...html } })).status, 302)
    })
  )

  it.effect("refuses whoever comes back without what they set out with", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("authenticated")
      const other = yield* makeSite("authenticated")
      const refused: ReadonlyArray<readonly [number, Partial<GatedRequest>, Site]> = [
        [400, { headers: html }, site],
        [400, { headers: { cookie: `__Host-svc_state=${"6".repeat(64)}` } }, site],
        [400, { headers: { cookie: `__Host-svc_state=${state}; __Host-svc_state=${state}` } }, site],
        [400, {}, other],
        [404, { scheme: "http" }, site],
        [404, { method: "POST" }, site],
        [404, { method: "HEAD" }, site],
        [404, { url: "/.svc/other" }, site]
      ]
      for (const [status, about, where] of refused) {
        const { code } = yield* codeFor(site)
        const url = about.url ?? `/.svc/access?code=${code}`
        const entered = yield* back(where, code, { ...about, url })
        assert.strictEqual(entered.status, status, JSON.stringify(about))
        assert.isUndefined(entered.headers?.["set-cookie"])
      }
      assert.strictEqual((yield* back(site, "")).status, 400)
      // What is in the store is not believed either.
      const { code } = yield* codeFor(site, "//evil.test/")
      assert.strictEqual((yield* back(site, code)).headers?.["location"], "/")
    })
  )

  it.effect("lets signed calls of the platform through, as nobody", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("invite_only")
      const other = yield* makeSite("invite_only")
      const { secrets } = yield* (yield* Invocations).target(site.orgId, site.environmentUid)
      const sent = '{"messages":[]}'
      const headersAt = (timestampSeconds: number) =>
        signed(secrets, { id: "1", timestampSeconds, body: sent })
      const call = { method: "POST", sent, headers: headersAt(1_800_000_000) }
      const through = yield* at(began, judged(site, call))
      if (through._tag !== "Forward") return assert.fail("it was not let through")
      assert.strictEqual(through.body?.toString(), sent)
      assert.isUndefined(through.setCookies)
      const ticket = through.cookie?.split("=")[1] ?? ""
      const claims = { h: site.host, e: site.environmentUid, exp: 1_800_000_300 }
      assert.deepStrictEqual(claimsOf(ticket, yield* ticketKey), claims)
      const refused = [
        [other, call, 401],
        [site, { ...call, sent: `${sent} ` }, 401],
        [site, { ...call, headers: headersAt(1_799_999_000) }, 401],
        [site, { ...call, headers: { ...html, "svc-signature": "t=1,v1=00" }, method: "GET" }, 401],
        [site, { ...call, sent: "x".repeat(5_000_000) }, 413],
        [site, { ...call, body: () => Effect.succeed(undefined) }, 413]
      ] as const
      for (const [where, about, status] of refused)
        assert.strictEqual((yield* at(began, answered(where, about))).status, status, about.sent.slice(0, 40))
    })
  )

  it.effect("reads no body for a signature that cannot hold", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("organization")
      const mac = "0".repeat(64)
      for (const signature of ["x", `t=1,v1=${mac}`, "t=1800000000", "t=1800000000,v1=00", `v1=${mac}`]) {
        const never = { method: "POST", headers: { "svc-signature": signature }, body: () => Effect.never }
        assert.strictEqual((yield* at(began, answered(site, never))).status, 401, signature)
      }
    })
  )

  it.effect("bodies that do not come keep nobody out, of their environment or another", () =>
    Effect.gen(function* () {
      const [site, other] = [yield* makeSite("organization"), yield* makeSite("organization")]
      const headers = { "svc-signature": `t=1800000000,v1=${"0".repeat(64)}` }
      const quick = { method: "POST", headers, body: () => Effect.succeed(Buffer.from("")) }
      const slow = { ...quick, body: () => Effect.never }
      const begin = (where: Site) =>
        Effect.forkChild(at(began, answered(where, slow)), { startImmediately: true })
      const own = yield* begin(other)
      const waiting = yield* Effect.forEach(Array.from({ length: 63 }), () => begin(site))
      // The oldest of the environment that has the most is given up.
      for (const [i, where] of [site, other].entries()) {
        assert.strictEqual((yield* at(began, answered(where, quick))).status, 401)
        const { status, headers } = yield* Fiber.join(waiting[i] ?? own)
        assert.deepStrictEqual([status, headers["retry-after"]], [503, "2"])
        waiting.push(yield* begin(site))
      }
      yield* Effect.forEach([own, ...waiting], Fiber.interrupt)
    })
  )
})
