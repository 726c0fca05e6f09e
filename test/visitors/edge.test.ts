/** Everything together: a browser without a screen, HAProxy, the gate, the platform's page and an app. */
import { spawn } from "node:child_process"
import { createHmac } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import * as tls from "node:tls"
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"
import { signed } from "#src/outbound/signature.ts"
import { Plane } from "#test/setup/control-plane.ts"
import {
  type EdgeAnswerSeen,
  type EdgeRequestOptions,
  TestEdge,
  testApp,
  testEdge
} from "#test/setup/edge.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { verify } from "../../examples/visitors/verify.ts"
import { visitor } from "../identity/visitor.ts"

/** Says what it was sent. */
const app = testApp(
  (request, response) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const body = Buffer.concat(chunks)
      response.writeHead(200, { "content-type": "application/json", "set-cookie": "theirs=1; Path=/" })
      response.end(
        JSON.stringify({
          headers: request.headers,
          url: request.url,
          bytes: body.length,
          body: `${body}`.slice(0, 100)
        })
      )
    })
  },
  (server) =>
    server.on("upgrade", (request, socket) => {
      const known = request.headers["x-svc-user"] === undefined ? "" : "X-Known: yes\r\n"
      // For the key that RFC 6455, section 1.3, has as an example.
      const accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
      socket.end(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${accept}${known}\r\n`
      )
    })
)

const html = { accept: "text/html" }

layer(testEdge(), { excludeTestServices: true, timeout: "4 minutes" })("a protected environment", (it) => {
  /** A tenant whose app is served under a host, for members of the organization. */
  const place = Effect.fn(function* (mode = "organization") {
    const { call, tenant } = yield* Plane
    const edge = yield* TestEdge
    const { origin } = yield* app
    const mine = yield* tenant()
    const token = mine.owner
    const projects = `/v1/orgs/${mine.slug}/projects`
    const environment = `${projects}/shop/environments/production`
    yield* call("POST", projects, { token, body: { name: "Shop", slug: "shop" } })
    const access = `${projects}/shop/access`
    yield* call("PATCH", environment, { token, body: { origin } })
    const list = call("GET", `${projects}/shop/environments`, { token })
    const found = yield* eventually(
      "it has an address",
      Effect.map(list, ({ body }) => body.find((one: { slug: string }) => one.slug === "production")),
      (one) => typeof one?.address === "string"
    )
    const host = new URL(found.address).hostname
    const rotated = yield* call("POST", `${environment}/signing-secret/rotate`, { token })
    yield* eventually(
      "the app is served",
      Effect.map(edge.request(host, "/"), ({ status }) => status === 200)
    )
    yield* call("PUT", access, { token, body: { mode } })
    yield* eventually(
      "the policy is in force",
      Effect.map(call("GET", access, { token }), ({ body }) => body.status === "ready")
    )
    // Ready means that the edge has taken it up.
    assert.strictEqual((yield* edge.request(host, "/")).status, 401)
    return {
      mine,
      host,
      access,
      uid: String(found.id),
      secret: String(rotated.body.signingSecret),
      ask: (target: string, options: EdgeRequestOptions = {}) => edge.request(host, target, options)
    }
  })
  type Place = Effect.Success<ReturnType<typeof place>>

  const cookiesOf = ({ headers }: EdgeAnswerSeen) =>
    new Map(
      (headers["set-cookie"] ?? []).map((field): [string, string] => {
        const [name = "", value = ""] = field.split(";", 1)[0]?.split("=") ?? []
        return [name, value]
      })
    )
  const cookie = (cookies: Iterable<readonly [string, string]>) =>
    [...cookies].map(([name, value]) => `${name}=${value}`).join("; ")
  const user = Effect.fnUntraced(function* (session: string) {
    const { sql } = yield* Plane
    const digest = digestOf(session).toString("hex")
    const [row] = yield* sql(`select a.id, a.email from session s join account a on a.id = s.user_id
      where s.digest = decode('${digest}', 'hex')`)
    return { id: String(row?.["id"]), email: String(row?.["email"]) }
  })

  /** The way of a browser to `target`, with this session at the platform: the cookies that it has then. */
  const enter = Effect.fn(function* ({ host, ask }: Place, session: string, target = "/cart?step=2") {
    const left = yield* ask(target, { headers: html })
    assert.strictEqual(left.status, 302, left.text)
    const state = cookiesOf(left)
    const browser = yield* visitor
    browser.cookies.set("svc_session", session)
    const sent = yield* browser.get(String(left.headers["location"]))
    assert.strictEqual(sent.status, 303, sent.text)
    const to = new URL(sent.location ?? "")
    assert.strictEqual(to.hostname, host)
    assert.strictEqual(to.port, String((yield* TestEdge).httpsPort))
    const entered = yield* ask(to.pathname + to.search, { headers: { ...html, cookie: cookie(state) } })
    return { entered, way: to.pathname + to.search, state }
  })

  it.effect(
    "lets a member in by way of the platform, and tells the app who it is",
    () =>
      Effect.gen(function* () {
        const { dataDir, sql } = yield* Plane
        const edge = yield* TestEdge
        const here = yield* place()
        const { mine, host, uid, secret, ask } = here
        const person = yield* user(mine.member)
        const { entered, way, state } = yield* enter(here, mine.member)
        assert.strictEqual(entered.status, 303)
        assert.strictEqual(entered.headers["location"], "/cart?step=2")
        assert.strictEqual(entered.headers["cache-control"], "no-store")
        const got = cookiesOf(entered)
        const [ticket = "", visit = ""] = [got.get("__Host-svc_access"), got.get("__Host-svc_visitor")]

        // What the app is sent.
        assert.isFalse(got.has("__Host-svc_state"))
        const mixed = `a=b; __Host-svc_visitor=${visit}; ${cookie(state)}; __Host-svc_access=${ticket}; c=d`
        for (const send of [edge.request, edge.request2]) {
          const headers = {
            cookie: mixed,
            "x-svc-user": "forged",
            x_svc_user: "forged",
            "X-Svc-User-Id": "forged"
          }
          const served = yield* send(host, "/cart?step=2", { headers })
          assert.strictEqual(served.status, 200, served.text)
          const { headers: told, url } = JSON.parse(served.text)
          assert.strictEqual(url, "/cart?step=2")
          assert.strictEqual(told.cookie, "a=b; c=d")
          assert.deepStrictEqual(verify(secret, told, host), person)
          assert.deepStrictEqual(
            Object.keys(told).filter((name) => /^x.svc.user/i.test(name)),
            ["x-svc-user"]
          )
          assert.isFalse(cookiesOf(served).has("__Host-svc_access"))
        }
        for (const spelling of [`${host}:${edge.httpsPort}`, host.toUpperCase(), `${host}.`]) {
          const served = yield* ask("/", { headers: { host: spelling, cookie: mixed } })
          assert.strictEqual(served.status, 200, spelling)
        }
        // Of two tickets one would reach the app.
        const twice = `__Host-svc_access=${ticket}; __Host-svc_access=${ticket}`
        assert.strictEqual((yield* ask("/", { headers: { cookie: twice } })).status, 400)
        // A code is good once.
        const again = yield* ask(way, { headers: { cookie: cookie(state) } })
        assert.strictEqual(again.status, 400)
        assert.isUndefined(again.headers["set-cookie"])

        // Without a ticket the visit is what counts, whatever is asked.
        const renewing = { cookie: `a=b; __Host-svc_visitor=${visit}` }
        const renewed = yield* ask("/new", { headers: renewing })
        assert.strictEqual(renewed.status, 200, renewed.text)
        assert.deepStrictEqual(verify(secret, JSON.parse(renewed.text).headers, host), person)
        assert.strictEqual(JSON.parse(renewed.text).headers.cookie, "a=b")
        assert.deepStrictEqual([...cookiesOf(renewed).keys()], ["theirs", "__Host-svc_access"])
        const fresh = cookiesOf(renewed).get("__Host-svc_access") ?? ""
        const direct = yield* ask("/", { headers: { cookie: `__Host-svc_access=${fresh}` } })
        assert.strictEqual(direct.status, 200)
        const large = yield* ask("/", { method: "POST", headers: renewing, body: Buffer.alloc(3_000_000, 1) })
        assert.strictEqual(JSON.parse(large.text).bytes, 3_000_000)
        const shaken = yield* handshake(here, `Cookie: __Host-svc_visitor=${visit}\r\n`)
        assert.match(shaken, /^HTTP\/1\.1 101 /)
        assert.match(shaken, /x-known: yes/i)

        // Whoever is removed is let through no more than until the ticket ends.
        const [{ exp } = { exp: 0 }] = [JSON.parse(`${Buffer.from(fresh.split(".")[1] ?? "", "base64url")}`)]
        assert.isAtMost(exp - Date.now() / 1000, 300)
        yield* sql(`delete from member where user_id = '${person.id}'`)
        assert.strictEqual((yield* ask("/", { headers: renewing })).status, 401)

        // Nothing that lets in stands anywhere else than in the browser.
        const code = way.split("code=")[1] ?? ""
        const secrets = [
          code,
          visit,
          ticket.split(".")[2] ?? "",
          fresh.split(".")[2] ?? "",
          ...state.values()
        ]
        const [rows] = yield* sql(`select coalesce((select jsonb_agg(a)::text from audit_log a), '')
          || coalesce((select jsonb_agg(e)::text from resource_event e), '')
          || coalesce((select jsonb_agg(r)::text from resource r), '') as text`)
        const kept = [
          String(rows?.["text"]),
          ...fs
            .globSync("**/*", { cwd: dataDir })
            .map((name) => path.join(dataDir, name))
            .filter((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile() === true)
            .map((file) => fs.readFileSync(file, "latin1"))
        ]
        assert.isAbove(kept.length, 3)
        for (const one of secrets) {
          assert.isAbove(one.length, 20)
          assert.isFalse(kept.some((text) => text.includes(one)))
        }
        assert.isString(uid)
      }),
    240_000
  )

  /** The first lines of the answer to a WebSocket's handshake. */
  const handshake = ({ host }: Place, more = "") =>
    Effect.flatMap(TestEdge, ({ tlsTo }) =>
      Effect.promise(
        () =>
          new Promise<string>((resolve, reject) => {
            const socket = tls.connect({ ...tlsTo(host), ALPNProtocols: ["http/1.1"] }, () =>
              socket.write(
                `GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${more}\r\n`
              )
            )
            let text = ""
            socket.on("data", (chunk: Buffer) => {
              text += chunk
              if (text.includes("\r\n\r\n")) {
                socket.destroy()
                resolve(text)
              }
            })
            socket.once("error", reject)
            socket.once("end", () => resolve(text))
          })
      )
    )

  const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url")
  const forge = (claims: object, { key, alg = "HS256", digest = "sha256" }: Forged) => {
    const text = `${encoded({ alg, typ: "JWT" })}.${encoded(claims)}`
    return `${text}.${key === "" ? "" : createHmac(digest, key).update(text).digest("base64url")}`
  }
  interface Forged {
    readonly key: string
    readonly alg?: string
    readonly digest?: string
  }

  it.effect(
    "refuses every ticket but its own, and sends nobody else on",
    () =>
      Effect.gen(function* () {
        const { dataDir } = yield* Plane
        const here = yield* place("authenticated")
        const other = yield* place("authenticated")
        const { host, uid, ask } = here
        const config = fs
          .globSync("**/*.cfg", { cwd: dataDir })
          .map((name) => fs.readFileSync(path.join(dataDir, name), "utf8"))
          .join("\n")
        const key = /jwt_verify\(txn\.alg,"([0-9a-f]{64})"\)/.exec(config)?.[1] ?? assert.fail("no key")
        const exp = Math.floor(Date.now() / 1000) + 200
        const good = { h: host, e: uid, exp }
        const status = (ticket: string) =>
          Effect.map(
            ask("/", { headers: { cookie: `__Host-svc_access=${ticket}` } }),
            (answer) => answer.status
          )
        assert.strictEqual(yield* status(forge(good, { key })), 200)
        const bad: Readonly<Record<string, string>> = {
          "another host": forge({ ...good, h: other.host }, { key }),
          "another environment": forge({ ...good, e: other.uid }, { key }),
          "no host": forge({ e: uid, exp }, { key }),
          "no environment": forge({ h: host, exp }, { key }),
          "no end": forge({ h: host, e: uid }, { key }),
          "an end in words": forge({ ...good, exp: "never" }, { key }),
          expired: forge({ ...good, exp: exp - 201 }, { key }),
          "alg none": forge(good, { key: "", alg: "none" }),
          "alg none, signed": forge(good, { key, alg: "none" }),
          "no algorithm": `${encoded({ typ: "JWT" })}.${encoded(good)}.`,
          HS512: forge(good, { key, alg: "HS512", digest: "sha512" }),
          "HS512 by name": forge(good, { key, alg: "HS512" }),
          "a wrong key": forge(good, { key: "0".repeat(64) }),
          "an empty key": `${encoded({ alg: "HS256" })}.${encoded(good)}.`,
          "cut short": forge(good, { key }).slice(0, -2),
          junk: "a.b.c",
          empty: ""
        }
        for (const [what, ticket] of Object.entries(bad)) assert.strictEqual(yield* status(ticket), 401, what)
        // It says of nobody: the app is told nothing, whatever came along.
        const nobody = yield* ask("/", {
          headers: { cookie: `__Host-svc_access=${forge(good, { key })}`, "x-svc-user": "forged" }
        })
        assert.isUndefined(JSON.parse(nobody.text).headers["x-svc-user"])

        // Programs are told, without a redirect.
        const programs: ReadonlyArray<EdgeRequestOptions> = [
          {},
          { method: "POST", body: "{}", headers: html },
          { headers: { ...html, "sec-fetch-mode": "cors" } },
          {
            method: "OPTIONS",
            headers: { origin: "https://a.test", "access-control-request-method": "PUT" }
          },
          { method: "HEAD" }
        ]
        for (const program of programs) {
          const told = yield* ask("/api", program)
          assert.strictEqual(told.status, 401, JSON.stringify(program))
          assert.isUndefined(told.headers["location"])
          assert.strictEqual(told.headers["cache-control"], "no-store")
        }
        assert.match(yield* handshake(here), /^HTTP\/1\.1 401 /)
        assert.match(yield* handshake(here, "Accept: text/html\r\n"), /^HTTP\/1\.1 401 /)
        const head = yield* ask("/", { method: "HEAD", headers: html })
        assert.strictEqual(head.status, 302)
        for (const target of ["//evil.test/", "/\\evil.test", "/.svc/access?code=x"]) {
          const left = yield* ask(target, { headers: html })
          if (left.status === 302)
            assert.strictEqual(new URL(String(left.headers["location"])).searchParams.get("return"), "/")
          else assert.strictEqual(left.status, 400, target)
        }
        // A code of another's, in a browser that set out by itself or not at all.
        const { way } = yield* enter(here, here.mine.owner)
        for (const headers of [{}, { cookie: `__Host-svc_state=${"0".repeat(64)}` }])
          assert.strictEqual((yield* ask(way, { headers })).status, 400)
        assert.strictEqual((yield* other.ask(way)).status, 400)
      }),
    240_000
  )

  it.effect(
    "lets calls of the platform through by their signature",
    () =>
      Effect.gen(function* () {
        const here = yield* place("invite_only")
        const { ask, secret } = here
        const body = '{"run":1}'
        const timestampSeconds = Date.now() / 1000
        const headers: Record<string, string> = {
          "content-type": "application/json",
          ...signed([Redacted.make(secret)], { id: "1", timestampSeconds, body })
        }
        const post = (sent: string, by: EdgeRequestOptions["headers"] = headers) =>
          ask("/run", { method: "POST", body: sent, headers: by })
        const through = yield* post(body)
        assert.strictEqual(through.status, 200, through.text)
        const told = JSON.parse(through.text)
        assert.deepStrictEqual([told.url, told.body], ["/run", body])
        assert.strictEqual(told.headers["svc-signature"], headers["svc-signature"])
        assert.isUndefined(told.headers["x-svc-user"])
        assert.isUndefined(told.headers["cookie"])
        assert.isFalse(cookiesOf(through).has("__Host-svc_access"))
        assert.strictEqual((yield* post(`${body} `)).status, 401)
        const foreign = signed([Redacted.make("whsec_00")], { id: "1", timestampSeconds, body })
        assert.strictEqual((yield* post(body, foreign)).status, 401)
      }),
    240_000
  )

  it.effect(
    "is greeted by the example of an app, run as it is",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const here = yield* place()
        const { mine, ask, secret } = here
        const port = yield* Effect.promise(freePort)
        yield* Effect.acquireRelease(
          Effect.sync(() =>
            spawn(
              process.execPath,
              [fileURLToPath(new URL("../../examples/visitors/app.ts", import.meta.url))],
              {
                env: { PORT: String(port), SIGNING_SECRET: secret },
                stdio: "ignore"
              }
            )
          ),
          (child) => Effect.sync(() => child.kill("SIGKILL"))
        )
        const environment = `/v1/orgs/${mine.slug}/projects/shop/environments/production`
        yield* call("PATCH", environment, { token: mine.owner, body: { origin: `http://127.0.0.1:${port}` } })
        const { entered } = yield* enter(here, mine.member)
        const ticket = cookiesOf(entered).get("__Host-svc_access")
        const { email } = yield* user(mine.member)
        yield* eventually(
          "the app knows who comes",
          ask("/", { headers: { cookie: `__Host-svc_access=${ticket}` } }),
          ({ text }) => text === `Hello ${email}\n`
        )
      }),
    240_000
  )

  it.effect(
    "opens and closes as the policy says",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const here = yield* place()
        const { mine, access, ask } = here
        const { entered } = yield* enter(here, mine.member)
        const headers = { cookie: cookie(cookiesOf(entered)) }
        assert.strictEqual((yield* ask("/", { headers })).status, 200)
        const set = (body: object) => call("PUT", access, { token: mine.owner, body })
        const until = (what: string, status: number, target: EdgeRequestOptions = {}) =>
          eventually(
            what,
            Effect.map(ask("/", target), (answer) => answer.status === status)
          )
        yield* set({ mode: "organization", environments: { production: "public" } })
        yield* until("everybody may see it", 200)
        const forged = yield* ask("/", { headers: { "x-svc-user": "forged", x_svc_user: "forged" } })
        const told = Object.keys(JSON.parse(forged.text).headers)
        assert.deepStrictEqual(
          told.filter((name) => /^x.svc.user/.test(name)),
          []
        )
        yield* set({ mode: "invite_only" })
        yield* until("it is closed", 401)
        const { "__Host-svc_visitor": visit = "" } = Object.fromEntries(cookiesOf(entered))
        const only = { headers: { cookie: `__Host-svc_visitor=${visit}` } }
        assert.strictEqual((yield* ask("/", only)).status, 401)
        const { email } = yield* user(mine.member)
        yield* call("POST", `${access}/invitations`, { token: mine.owner, body: { email } })
        assert.strictEqual((yield* ask("/", only)).status, 200)
      }),
    240_000
  )
})
