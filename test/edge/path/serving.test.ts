/** What an edge does with requests: a real HAProxy, one control plane, apps of this process. */
import { createHash, createHmac } from "node:crypto"
import * as fs from "node:fs"
import type * as http from "node:http"
import * as https from "node:https"
import type { AddressInfo } from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as tls from "node:tls"
import { expect, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { curl, TestEdge, testEdge } from "#test/setup/edge.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { eventually, until } from "#test/setup/wait.ts"
import { anApp, anEnvironment, echo, inForce } from "./app.ts"

const echoed = (text: string) =>
  JSON.parse(text) as {
    readonly method: string
    readonly url: string
    readonly headers: http.IncomingHttpHeaders
  }

/** A conversation over TLS, as it is. */
const conversation = (options: tls.ConnectionOptions) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<tls.TLSSocket>((resolve, reject) => {
          const socket = tls.connect(options, () => resolve(socket))
          socket.on("error", reject)
        })
    ),
    (socket) => Effect.sync(() => socket.destroy())
  ).pipe(
    Effect.map((socket) => {
      let heard = ""
      socket.on("data", (chunk: Buffer) => {
        heard += chunk.toString("latin1")
      })
      return {
        socket,
        heard: () => heard,
        until: (wanted: RegExp) =>
          Effect.promise(() =>
            until(
              `${wanted} is heard`,
              () => {
                if (!wanted.test(heard)) throw new Error(`heard: ${JSON.stringify(heard)}`)
                return true
              },
              20
            )
          )
      }
    })
  )

/** Of the authority that the edge takes certificates of origins from. */
class Origins extends Context.Service<Origins, CertificateAuthority["Service"]>()("test/Origins") {}

const world = Layer.unwrap(
  Effect.gen(function* () {
    const authority = yield* CertificateAuthority
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-origins-"))),
      (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true }))
    )
    const file = path.join(folder, "authority.pem")
    fs.writeFileSync(file, authority.caPem)
    fs.chmodSync(folder, 0o755)
    return Layer.merge(testEdge({}, { SVC_EDGE_ORIGIN_CA_FILE: file }), Layer.succeed(Origins, authority))
  })
).pipe(Layer.provide(CertificateAuthority.layer), Layer.provide(memorySecrets().layer))

layer(world, { excludeTestServices: true, timeout: "2 minutes" })("an edge", (it) => {
  it.effect("serves an environment at its managed address, over HTTP/1.1 and HTTP/2", () =>
    Effect.gen(function* () {
      const { request, request2, appsDomain } = yield* TestEdge
      const { host, uid, project, address } = yield* anApp(echo)
      const digits = uid.replaceAll("-", "").slice(-6)
      expect(host).toBe(`production--${project.slug}-${digits}.${appsDomain}`)
      expect(address).toMatch(/^https:\/\/.*:\d+$/)
      for (const send of [request, request2]) {
        const { status, text } = yield* send(host, "/hello?x=1")
        expect(status).toBe(200)
        expect(echoed(text)).toMatchObject({ method: "GET", url: "/hello?x=1" })
      }
    })
  )

  it.effect("tells an app who asks, and lets no visitor say it", () =>
    Effect.gen(function* () {
      const { request } = yield* TestEdge
      const { host } = yield* anApp(echo)
      const forged = {
        "X-Svc-User": "root",
        X_Svc_User: "root",
        "x-svc-edge-client": "6.6.6.6",
        "X-Forwarded-For": "6.6.6.6",
        X_Forwarded_For: "6.6.6.6",
        "X-Real-IP": "6.6.6.6",
        Forwarded: "for=6.6.6.6",
        Cookie: "a=1; __Host-svc_visitor=secret; b=2; __Host-svc_access=ticket"
      }
      const { text } = yield* request(host, "/", { headers: forged })
      const { headers } = echoed(text)
      expect(headers).toMatchObject({
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": host,
        host,
        cookie: "a=1; b=2"
      })
      expect(text).not.toContain("6.6.6.6")
      expect(Object.keys(headers).filter((name) => /^x[-_]svc/.test(name))).toEqual(["x-svc-via"])
      // An app that is sent its own requests by way of the edge.
      const again = { "X-Svc-Via": String(headers["x-svc-via"]) }
      expect((yield* request(host, "/", { headers: again })).status).toBe(508)
    })
  )

  it.effect(
    "refuses a host other than the one of the handshake, two tickets, and handshakes for nobody",
    () =>
      Effect.gen(function* () {
        const { request, request2, tlsTo } = yield* TestEdge
        const one = yield* anApp(echo)
        const other = yield* anEnvironment(null)
        for (const send of [request, request2])
          expect((yield* send(other.host, "/", { servername: one.host })).status).toBe(421)
        const cookie = "__Host-svc_access=a; __Host-svc_access=b"
        expect((yield* request(one.host, "/", { headers: { cookie } })).status).toBe(400)
        const failure = yield* Effect.promise(
          () =>
            new Promise<string>((resolve) => {
              const socket = tls.connect(tlsTo("strange.example"))
              socket.once("error", (error) => resolve(error.message))
              socket.once("secureConnect", () => resolve("connected"))
            })
        )
        expect(failure).toMatch(/unrecognized name|handshake/i)
      })
  )

  it.effect("answers for hosts that nobody has, and for apps that are not there", () =>
    Effect.gen(function* () {
      const { request, requestPlain, appsDomain } = yield* TestEdge
      expect((yield* request(`nobody.${appsDomain}`, "/")).status).toBe(404)
      expect((yield* requestPlain("nobody.example", "/")).status).toBe(404)
      const empty = yield* anEnvironment(null)
      yield* inForce
      const answer = yield* request(empty.host, "/")
      expect(answer).toMatchObject({ status: 503, text: "This app is not running.\n" })
      const gone = yield* anApp(echo)
      gone.app.server.close()
      gone.app.server.closeAllConnections()
      expect(yield* request(gone.host, "/")).toMatchObject({
        status: 503,
        text: "The app does not answer.\n"
      })
    })
  )

  it.effect("sends requests without TLS on to TLS, except for challenges of certificates", () =>
    Effect.gen(function* () {
      const { requestPlain, request, httpsPort } = yield* TestEdge
      const { sql } = yield* Plane
      const { host } = yield* anApp(echo)
      const redirect = yield* requestPlain(host, "/a/b?c=d")
      expect(redirect).toMatchObject({ status: 308 })
      expect(redirect.headers.location).toBe(`https://${host}:${httpsPort}/a/b?c=d`)
      yield* sql(`insert into edge_challenge (host, token, key_authorization, expires_at)
        values ('${host}', 'tok-1', 'tok-1.print', now() + interval '1 hour')`)
      const path = "/.well-known/acme-challenge/tok-1"
      expect(yield* requestPlain(host, path)).toMatchObject({ status: 200, text: "tok-1.print" })
      expect(yield* request(host, path)).toMatchObject({ status: 200, text: "tok-1.print" })
      expect((yield* requestPlain(host, `${path}x`)).status).toBe(404)
    })
  )

  it.effect("sends one custom host on to another, and says how long TLS is to be used", () =>
    Effect.gen(function* () {
      const { request, requestPlain, httpsPort, appsDomain } = yield* TestEdge
      const { sql } = yield* Plane
      const { host, uid } = yield* anApp(echo)
      const [row] = yield* sql(`select org_id from edge_site where environment_uid = '${uid}'`)
      const custom = (name: string, redirect: string) =>
        sql(`insert into edge_host (hostname, org_id, environment_uid, redirect_to, hsts_seconds)
          values ('${name}.${appsDomain}', '${row?.["org_id"]}', '${uid}', ${redirect}, 300)`)
      yield* custom("www-shop", "null")
      yield* custom("shop", `'www-shop.${appsDomain}'`)
      const served = yield* Effect.promise(() =>
        until("the custom host is served", async () => {
          const answer = await Effect.runPromise(request(`shop.${appsDomain}`, "/x?y=1"))
          return answer.status === 308 ? answer : undefined
        })
      )
      expect(served.headers).toMatchObject({
        location: `https://www-shop.${appsDomain}:${httpsPort}/x?y=1`,
        "strict-transport-security": "max-age=300"
      })
      expect((yield* request(`www-shop.${appsDomain}`, "/")).headers["strict-transport-security"]).toBe(
        "max-age=300"
      )
      expect((yield* request(host, "/")).headers["strict-transport-security"]).toBeUndefined()
      expect((yield* requestPlain(`shop.${appsDomain}`, "/.well-known/acme-challenge/none")).status).toBe(404)
    })
  )

  it.effect("takes an origin with TLS by the name of its certificate alone", () =>
    Effect.gen(function* () {
      const { request } = yield* TestEdge
      const { call } = yield* Plane
      const { issue } = yield* Origins
      const { certificatePem, privateKeyPem } = yield* issue({ hosts: ["origin.localhost"] })
      const server = yield* Effect.acquireRelease(
        Effect.promise(
          () =>
            new Promise<https.Server>((resolve) => {
              const made = https.createServer(
                { cert: certificatePem, key: Redacted.value(privateKeyPem) },
                (_, response) => response.end("by TLS")
              )
              made.listen(0, "127.0.0.1", () => resolve(made))
            })
        ),
        (made) =>
          Effect.sync(() => {
            made.close()
            made.closeAllConnections()
          })
      )
      const { port } = server.address() as AddressInfo
      const { host, environments } = yield* anEnvironment(`https://origin.localhost:${port}`)
      yield* eventually("it is served", request(host, "/"), ({ text }) => text === "by TLS")
      yield* call("PATCH", `${environments}/production`, {
        body: { origin: `https://wrong.localhost:${port}` }
      })
      const refused = yield* eventually(
        "the other name is refused",
        request(host, "/"),
        ({ status }) => status !== 200
      )
      expect(refused).toMatchObject({ status: 503, text: "The app does not answer.\n" })
    }).pipe(Effect.scoped)
  )

  it.effect("keeps an app's cookies away from other apps, and from the platform's names", () =>
    Effect.gen(function* () {
      const { request, appsDomain } = yield* TestEdge
      const { host } = yield* anApp((_, response) => {
        response.setHeader("set-cookie", [
          `a=1; Domain=${appsDomain}; Path=/`,
          "b=2; Path=/",
          `c=3; Path=/; domain = ${appsDomain}`,
          `d=4; Domain=${appsDomain}; Domain=${appsDomain}`,
          "__Host-svc_access=stolen; Path=/; Secure"
        ])
        response.end()
      })
      const { headers } = yield* request(host, "/")
      expect(headers["set-cookie"]).toEqual([
        "a=1; Path=/",
        "b=2; Path=/",
        "c=3; Path=/",
        "svc_refused=; Max-Age=0",
        "svc_refused=; Max-Age=0"
      ])
    })
  )

  it.effect("lets nobody in without a ticket for this host and environment", () =>
    Effect.gen(function* () {
      const { request } = yield* TestEdge
      const plane = yield* Plane
      const { host, uid } = yield* anApp(echo)
      yield* plane.sql(`update edge_site set access = 'organization' where environment_uid = '${uid}'`)
      yield* Effect.promise(() =>
        until(
          "the app is protected",
          async () => (await Effect.runPromise(request(host, "/"))).status === 401
        )
      )
      const config = fs.readFileSync(`${plane.dataDir}/edge/haproxy.cfg`, "utf8")
      const key = /jwt_verify\(txn\.alg,"([0-9a-f]{64})"\)/.exec(config)?.[1] ?? ""
      const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")
      const ticket = (payload: object, signing = key, alg = "HS256") => {
        const text = `${encode({ alg, typ: "JWT" })}.${encode(payload)}`
        const sum = createHmac(alg === "HS512" ? "sha512" : "sha256", signing)
          .update(text)
          .digest("base64url")
        return `${text}.${alg === "none" ? "" : sum}`
      }
      const exp = Math.floor(Date.now() / 1000) + 60
      const good = { h: host, e: uid, exp, u: "who" }
      const asked = (value: string) =>
        request(host, "/", { headers: { cookie: `a=1; __Host-svc_access=${value}` } })
      const seen = yield* asked(ticket(good))
      expect(seen.status).toBe(200)
      expect(echoed(seen.text).headers).toMatchObject({ "x-svc-user": "who", cookie: "a=1" })
      for (const bad of [
        ticket({ ...good, h: "other.example" }),
        ticket({ ...good, e: "01a20374-7479-7001-a2e3-2d4bdf6dfaa5" }),
        ticket({ ...good, exp: exp - 120 }),
        ticket({ h: host, e: uid, u: "who" }),
        ticket(good, "wrong"),
        ticket(good, key, "none"),
        ticket(good, key, "HS512"),
        "a.b.c",
        ""
      ])
        expect((yield* asked(bad)).status, bad).toBe(401)
    })
  )

  it.effect("carries WebSockets, event streams as they come, and trailers", () =>
    Effect.gen(function* () {
      const { tlsTo } = yield* TestEdge
      let events: http.ServerResponse | undefined
      const { host } = yield* anApp(
        (request, response) => {
          if (request.url === "/events") {
            response.writeHead(200, { "content-type": "text/event-stream" })
            response.write("data: 1\n\n")
            events = response
          } else if (request.url === "/trailers") {
            request.resume()
            request.once("end", () => {
              response.writeHead(200, { trailer: "X-Sum" })
              response.write(JSON.stringify(request.trailers))
              response.addTrailers({ "X-Sum": "42" })
              response.end()
            })
          } else response.end("ok")
        },
        (server) =>
          server.on("upgrade", (_, socket) => {
            socket.write(
              "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
            )
            socket.pipe(socket)
          })
      )
      const http1 = { ...tlsTo(host), ALPNProtocols: ["http/1.1"] }
      const websocket = yield* conversation(http1)
      websocket.socket.write(
        `GET /ws HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`
      )
      yield* websocket.until(/^HTTP\/1.1 101/)
      websocket.socket.write("ping-pong")
      yield* websocket.until(/ping-pong$/)

      const stream = yield* conversation(http1)
      stream.socket.write(`GET /events HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      yield* stream.until(/data: 1/)
      events?.write("data: 2\n\n")
      yield* stream.until(/data: 2/)

      const trailers = yield* conversation(http1)
      trailers.socket.write(
        `POST /trailers HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\nTrailer: X-In\r\n\r\n2\r\nhi\r\n0\r\nX-In: 7\r\n\r\n`
      )
      yield* trailers.until(/x-sum: 42/i)
      expect(trailers.heard()).toContain('{"x-in":"7"}')
    }).pipe(Effect.scoped)
  )

  it.effect(
    "carries 100 MB both ways, and asks the app before a body is sent",
    () =>
      Effect.gen(function* () {
        const { httpsPort, request } = yield* TestEdge
        const { caPem } = yield* TestEdge
        const block = Buffer.alloc(1 << 20, "0123456789abcdef")
        const sum = createHash("sha256")
        for (let i = 0; i < 100; i++) sum.update(block)
        const wanted = sum.digest("hex")
        const { host } = yield* anApp(
          (incoming, response) => {
            if (incoming.url === "/down") {
              let left = 100
              const more = () => {
                while (left > 0) {
                  left--
                  if (!response.write(block)) return void response.once("drain", more)
                }
                response.end()
              }
              return more()
            }
            const hash = createHash("sha256")
            incoming.on("data", (chunk: Buffer) => hash.update(chunk))
            incoming.once("end", () => response.end(hash.digest("hex")))
          },
          (server) =>
            server.on("checkContinue", (incoming: http.IncomingMessage, response: http.ServerResponse) => {
              if (incoming.url === "/refused") {
                response.writeHead(413, { connection: "close" })
                response.end("too long")
              } else {
                response.writeContinue()
                server.emit("request", incoming, response)
              }
            })
        )
        const { dataDir } = yield* Plane
        const file = `${dataDir}/upload`
        const ca = `${dataDir}/client-ca.pem`
        fs.writeFileSync(ca, caPem)
        fs.writeFileSync(file, "")
        for (let i = 0; i < 100; i++) fs.appendFileSync(file, block)
        const to = ["--cacert", ca, "--resolve", `${host}:${httpsPort}:127.0.0.1`]
        const url = `https://${host}:${httpsPort}`
        const up = yield* curl([...to, "--http2", "-T", file, `${url}/up`])
        expect(up.out).toBe(wanted)
        yield* curl([...to, "--http1.1", "-o", `${dataDir}/down`, `${url}/down`])
        const got = createHash("sha256")
          .update(fs.readFileSync(`${dataDir}/down`))
          .digest("hex")
        expect(got).toBe(wanted)
        const refused = yield* curl([
          ...to,
          "--http1.1",
          "-H",
          "Expect: 100-continue",
          "--expect100-timeout",
          "60",
          "-T",
          file,
          "-w",
          " %{http_code} %{size_upload}",
          `${url}/refused`
        ])
        expect(refused.out).toBe("too long 413 0")
        expect(
          (yield* request(host, "/", { method: "POST", headers: { expect: "100-continue" }, body: "x" }))
            .status
        ).toBe(200)
      }),
    240_000
  )

  it.effect("holds requests for an app that sleeps until it is awake, also WebSockets and bodies", () =>
    Effect.gen(function* () {
      const { request, tlsTo } = yield* TestEdge
      const { sql } = yield* Plane
      const { host, uid } = yield* anApp(
        (incoming, response) => {
          const chunks: Array<Buffer> = []
          incoming.on("data", (chunk: Buffer) => chunks.push(chunk))
          incoming.once("end", () => {
            const { headers } = incoming
            response.end(JSON.stringify({ body: Buffer.concat(chunks).toString(), headers }))
          })
        },
        (server) =>
          server.on("upgrade", (_, socket) => {
            socket.write(
              "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
            )
            socket.pipe(socket)
          })
      )
      yield* sql(`update edge_site set asleep = true where environment_uid = '${uid}'`)
      yield* inForce
      const asks = Array.from({ length: 20 }, (_, i) =>
        Effect.runPromise(request(host, `/${i}`, { method: "POST", body: `body ${i}` }))
      )
      const websocket = yield* conversation({ ...tlsTo(host), ALPNProtocols: ["http/1.1"] })
      websocket.socket.write(
        `GET /ws HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`
      )
      yield* Effect.promise(() =>
        until("somebody waits for it", async () => {
          const rows = await Effect.runPromise(
            sql(`select wake_requested_at from edge_site where environment_uid = '${uid}'`)
          )
          return rows[0]?.["wake_requested_at"] != null
        })
      )
      yield* sql(
        `update edge_site set asleep = false, wake_requested_at = null where environment_uid = '${uid}'`
      )
      const answers = yield* Effect.promise(() => Promise.all(asks))
      expect(answers.map(({ status }) => status)).toEqual(asks.map(() => 200))
      expect(answers.map(({ text }) => JSON.parse(text).body)).toEqual(asks.map((_, i) => `body ${i}`))
      expect(JSON.parse(answers[0]?.text ?? "{}").headers).toMatchObject({
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "https"
      })
      yield* websocket.until(/^HTTP\/1.1 101/)
      websocket.socket.write("after the sleep")
      yield* websocket.until(/after the sleep$/)
    }).pipe(Effect.scoped)
  )

  it.effect("lets nobody but HAProxy ask its agent", () =>
    Effect.gen(function* () {
      const { dataDir } = yield* Plane
      const [port] = fs
        .readdirSync(`${dataDir}/ports`)
        .filter((name) => fs.readlinkSync(`${dataDir}/ports/${name}`) === "edge/agent")
      const answer = yield* Effect.promise(() =>
        fetch(`http://127.0.0.1:${port}/`, { headers: { "X-Svc-Edge-Key": "guess" } })
      )
      expect(answer.status).toBe(403)
      for (const name of ["node.json", "haproxy.cfg", "hosts.map"])
        expect(fs.statSync(`${dataDir}/edge/${name}`).mode & 0o777, name).toBe(0o600)
      expect(fs.statSync(`${dataDir}/edge`).mode & 0o777).toBe(0o700)
    })
  )
})
