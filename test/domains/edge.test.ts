/** Custom domains end to end: names in DNS, certificates of an ACME authority and of our own, and visitors at a real edge. */
import * as fs from "node:fs"
import * as os from "node:os"
import { join } from "node:path"
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { anApp, echo } from "#test/edge/path/app.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { curl, TestEdge, testEdge } from "#test/setup/edge.ts"
import { canLook, trustingBrowser } from "#test/setup/pages.ts"
import { challengeServer, pebble } from "#test/setup/pebble.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"

interface Outside {
  readonly dns: Effect.Success<typeof challengeServer>
  /** What visitors trust. Undefined: the platform's own authority. */
  readonly root: string | undefined
}
class Names extends Context.Service<Names, Outside>()("test/Outside") {}

const variables = (dns: Outside["dns"]) => ({
  SVC_DNS_SERVERS: dns.address,
  SVC_APPS_DOMAIN: "apps.test",
  SVC_EDGE_ADDRESSES: "127.0.0.1"
})

const withAcme = Layer.unwrap(
  Effect.gen(function* () {
    const dns = yield* challengeServer
    const httpPort = yield* Effect.promise(() => freePort())
    const { directory, root, trusted } = yield* pebble({
      dns: dns.address,
      httpPort,
      forbidden: "blocked.example"
    })
    const acme = {
      SVC_ACME_DIRECTORY: directory,
      SVC_ACME_CA_FILE: trusted,
      SVC_EDGE_HTTP_PORT: String(httpPort)
    }
    return Layer.merge(testEdge({}, { ...variables(dns), ...acme }), Layer.succeed(Names, { dns, root }))
  })
)
const withOwnAuthority = Layer.unwrap(
  Effect.map(challengeServer, (dns) =>
    Layer.merge(testEdge({}, variables(dns)), Layer.succeed(Names, { dns, root: undefined }))
  )
)

/** What a visitor of the host name gets: the first line and the body of an answer, or why there is none. */
const visited = (host: string, path = "/") =>
  Effect.gen(function* () {
    const { httpsPort, caPem } = yield* TestEdge
    const { root } = yield* Names
    return yield* Effect.promise(
      () =>
        new Promise<string>((resolve) => {
          const socket = tls.connect({
            host: "127.0.0.1",
            port: httpsPort,
            servername: host,
            ca: root ?? caPem
          })
          let text = ""
          socket.once("secureConnect", () =>
            socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)
          )
          socket.on("data", (chunk: Buffer) => {
            text += chunk.toString()
          })
          socket.once("error", (error) => resolve(`error: ${error.message}`))
          socket.once("close", () => resolve(text))
        })
    )
  })

/** The same by curl, which trusts the root of the authority and nobody else. */
const byCurl = (host: string, path: string) =>
  Effect.gen(function* () {
    const { httpsPort, caPem } = yield* TestEdge
    const { root = caPem } = yield* Names
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => fs.mkdtempSync(join(os.tmpdir(), "svc-test-root-"))),
      (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true }))
    )
    const file = join(folder, "root.pem")
    fs.writeFileSync(file, root)
    return yield* curl([
      ...["--cacert", file, "--capath", folder, "--resolve", `${host}:${httpsPort}:127.0.0.1`],
      ...["--write-out", "\nHTTP/%{http_version} %{response_code}, verified: %{ssl_verify_result}"],
      `https://${host}:${httpsPort}${path}`
    ])
  })

/** The same by a browser whose user trusts this root, and no other that is not public. */
const byBrowser = (host: string, path: string, root: string) =>
  Effect.gen(function* () {
    const { httpsPort } = yield* TestEdge
    const page = yield* trustingBrowser(root)
    return yield* Effect.promise(() =>
      page.goto(`https://${host}:${httpsPort}${path}`).then(
        async (answer) => `${answer?.status()} ${await answer?.text()}`,
        (error: Error) => error.message
      )
    )
  })

const aShop = Effect.gen(function* () {
  const { call } = yield* Plane
  const app = yield* anApp(echo)
  const base = `/v1/orgs/${app.org}/projects/${app.project.id}/domains`
  const add = (body: object) =>
    Effect.map(call("POST", base, { body }), (made) => {
      assert.strictEqual(made.status, 201, made.text)
      return made.body
    })
  const is = (id: string, status: string) =>
    eventually(`the domain is ${status}`, call("GET", `${base}/${id}`), ({ body }) => body.status === status)
  return { ...app, base, add, is }
})

layer(withAcme, { excludeTestServices: true, timeout: "2 minutes" })("with an ACME authority", (it) => {
  it.effect(
    "a domain becomes active by itself once DNS is right, is served with its certificate, and goes",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { dns } = yield* Names
        const { add, is, base, host } = yield* aShop
        const made = yield* add({ hostname: "www.customer.example", hstsSeconds: 3600 })
        assert.strictEqual(made.status, "pending_dns")
        assert.include(made.instructions, `www.customer.example CNAME ${host}`)
        assert.match(yield* visited("www.customer.example"), /^error/)
        // The authority asks the same name server, which has to know an address as well.
        yield* dns.a("www.customer.example", ["127.0.0.1"])
        yield* dns.a(host, ["127.0.0.1"])
        yield* dns.cname("www.customer.example", host)
        const { body } = yield* is(made.id, "active")
        assert.deepStrictEqual([body.verificationErrors], [null])
        assert.match(body.certificateExpiresAt, /^20\d\d-/)
        const answer = yield* visited("www.customer.example", "/hello")
        assert.match(answer, /^HTTP\/1\.1 200/)
        assert.match(answer, /strict-transport-security: max-age=3600/i)
        assert.include(answer, '"url":"/hello"')
        const ofOtherHands = yield* byCurl("www.customer.example", "/hello")
        assert.strictEqual(ofOtherHands.code, 0, ofOtherHands.out)
        assert.match(ofOtherHands.out, /"url":"\/hello".*\nHTTP\/2 200, verified: 0$/)

        if (canLook) {
          const { root = "" } = yield* Names
          const { caPem } = yield* TestEdge
          assert.match(yield* byBrowser("www.customer.example", "/seen", root), /^200 .*"url":"\/seen"/)
          // It is this root that it goes by.
          assert.match(yield* byBrowser("www.customer.example", "/", caPem), /ERR_CERT_AUTHORITY_INVALID/)
        }

        // The top of the zone has addresses, and sends its visitors on.
        const apex = yield* add({ hostname: "customer.example", redirectTo: "www.customer.example" })
        assert.match(apex.instructions, /ALIAS .* A 127\.0\.0\.1/)
        yield* dns.a("customer.example", ["127.0.0.1"])
        const [record, value] = /(_svc-challenge\S+) TXT "(\w+)"/.exec(apex.instructions)?.slice(1) ?? []
        yield* dns.txt(record ?? "", value ?? "")
        yield* is(apex.id, "active")
        const sent = yield* visited("customer.example", "/a?b=1")
        assert.match(sent, /^HTTP\/1\.1 30[18]/)
        assert.match(sent, /location: https:\/\/www\.customer\.example[:\d]*\/a\?b=1/i)

        // DNS moves away: it is told, what still comes is served, and nobody else can take the name.
        yield* dns.noA("customer.example")
        yield* dns.a("customer.example", ["192.0.2.9"])
        const moved = yield* call("POST", `${base}/${apex.id}/check`)
        assert.strictEqual(moved.body.status, "active")
        assert.match(
          moved.body.verificationErrors,
          /192\.0\.2\.9, which is not this platform's\. What still comes here is served/
        )
        const [event] = (yield* call("GET", `/v1/orgs/main/resources/${apex.id}/events`)).body.items
        assert.deepInclude(event, { reason: "DnsMoved" })
        assert.match(yield* visited("customer.example"), /^HTTP\/1\.1 30[18]/)

        for (const { id } of [apex, made]) {
          const removed = yield* call("DELETE", `${base}/${id}`)
          assert.strictEqual(removed.status, 200, removed.text)
        }
        // Withdrawn before the answer.
        assert.notMatch(yield* visited("www.customer.example"), /^HTTP\/1\.1 200/)
        yield* eventually("they are gone", call("GET", base), ({ body }) => body.length === 0)
      }).pipe(Effect.scoped)
  )

  it.effect("a refusal of the authority is told in its own words", () =>
    Effect.gen(function* () {
      const { dns } = yield* Names
      const { add, is, host } = yield* aShop
      const { id } = yield* add({ hostname: "www.blocked.example" })
      yield* dns.cname("www.blocked.example", host)
      const { body } = yield* is(id, "failed")
      assert.match(body.verificationErrors, /refused: .*blocked/i)
    }).pipe(Effect.scoped)
  )

  it.effect("what is lost at the edge is put back", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { dns } = yield* Names
      const { add, is, base, host } = yield* aShop
      const name = "www.lost.example"
      const { id } = yield* add({ hostname: name })
      yield* dns.a(name, ["127.0.0.1"])
      yield* dns.a(host, ["127.0.0.1"])
      yield* dns.cname(name, host)
      yield* is(id, "active")
      yield* sql(`delete from edge_host where hostname = '${name}'`)
      yield* sql(`delete from edge_certificate where name = '${name}'`)
      yield* call("POST", `${base}/${id}/check`)
      yield* is(id, "active")
      const answer = yield* eventually("it is served again", visited(name), (text) =>
        text.startsWith("HTTP/1.1 200")
      )
      assert.include(answer, '"url":"/"')
    }).pipe(Effect.scoped)
  )
})

layer(withOwnAuthority, { excludeTestServices: true, timeout: "2 minutes" })(
  "with the platform's own authority",
  (it) => {
    it.effect("a domain becomes active and is served to whoever trusts that authority", () =>
      Effect.gen(function* () {
        const { dns } = yield* Names
        const { add, is, host } = yield* aShop
        const { id } = yield* add({ hostname: "www.inside.example" })
        yield* dns.fails("www.inside.example")
        const { call } = yield* Plane
        const { base } = { base: `/v1/orgs/main/resources/${id}` }
        yield* eventually("it says what name servers answer", call("GET", base), ({ body }) =>
          /SERVFAIL/.test(body.status?.verificationErrors ?? "")
        )
        yield* dns.recovers("www.inside.example")
        yield* dns.cname("www.inside.example", host)
        yield* is(id, "active")
        assert.match(yield* visited("www.inside.example"), /^HTTP\/1\.1 200/)
        const { caPem } = yield* TestEdge
        if (canLook) assert.match(yield* byBrowser("www.inside.example", "/", caPem), /^200 /)
      }).pipe(Effect.scoped)
    )
  }
)
