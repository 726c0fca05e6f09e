/** What HTTP itself asks of a server, for clients that send what others would not. */
import * as net from "node:net"
import { brotliDecompressSync, gunzipSync } from "node:zlib"
import { assert, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { bounds, listener } from "#src/api/listener.ts"
import { RequestLimit } from "#src/api/overload.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

/** Sends bytes as they are, and answers all that comes back until the connection ends. */
const exchange = (port: number, write: (socket: net.Socket) => void) =>
  Effect.callback<string>((resume) => {
    const socket = net.connect(port, "127.0.0.1")
    let received = ""
    socket.on("data", (chunk) => {
      received += chunk.toString("utf8")
    })
    // Writing to what the server has ended is no fault of the test.
    socket.on("error", () => undefined)
    socket.on("connect", () => write(socket))
    socket.on("close", () => resume(Effect.succeed(received)))
    return Effect.sync(() => socket.destroy())
  })
const raw = Effect.fnUntraced(function* (lines: ReadonlyArray<string>) {
  const { url } = yield* Plane
  const text = [...lines, "connection: close", "", ""].join("\r\n")
  return yield* exchange(Number(new URL(url).port), (socket) => socket.write(text))
})

const limit = { atOnce: 1_000, arriving: 1_000 }
const HttpPlane = testPlane({ roles: new Set(["api"] as const) }).pipe(
  Layer.provide(Layer.succeed(RequestLimit, limit))
)

layer(HttpPlane, { excludeTestServices: true })("HTTP", (it) => {
  it.effect("a server with too much to do says so, and when to come again", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const usual = limit.atOnce
      yield* Effect.addFinalizer(() => Effect.sync(() => (limit.atOnce = usual)))
      limit.atOnce = 0
      const { status, headers, body } = yield* call("GET", "/v1/orgs/main/projects")
      assert.deepStrictEqual([status, body.code], [503, "overloaded"])
      assert.match(headers.get("retry-after") ?? "", /^[1-5]$/)
      assert.isNotEmpty(headers.get("x-request-id"))
      assert.strictEqual((yield* call("GET", "/v1/health")).status, 200)
      limit.atOnce = usual
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/projects")).status, 200)
    }).pipe(Effect.scoped)
  )

  it.effect("who has not sent the body yet keeps out only others who send, until the connection ends", () =>
    Effect.gen(function* () {
      const { call, url } = yield* Plane
      const usual = limit.arriving
      yield* Effect.addFinalizer(() => Effect.sync(() => (limit.arriving = usual)))
      limit.arriving = 1
      const socket = net.connect(Number(new URL(url).port), "127.0.0.1")
      yield* Effect.addFinalizer(() => Effect.sync(() => socket.destroy()))
      socket.on("error", () => undefined)
      socket.write(
        "POST /v1/auth/sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
      )
      const send = Effect.map(
        call("POST", "/v1/orgs/main/manifest/plan", { raw: "{" }),
        ({ status }) => status
      )
      yield* eventually("others who send are refused", send, (status) => status === 503)
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/projects")).status, 200)
      socket.destroy()
      yield* eventually("they are heard again", send, (status) => status === 400)
    }).pipe(Effect.scoped)
  )

  it.effect("a body that is not UTF-8 is malformed, and one that is encoded is not taken", () =>
    Effect.gen(function* () {
      const { url, apiKey, session } = yield* Plane
      const send = (path: string, body: Uint8Array | string, headers: Record<string, string> = {}) =>
        Effect.promise(async () => {
          const response = await fetch(`${url}${path}`, {
            method: "POST",
            body: typeof body === "string" ? body : new Uint8Array(body),
            headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json", ...headers }
          })
          const answer: unknown = await response.json()
          return { status: response.status, headers: response.headers, body: answer }
        })
      const broken = [
        Buffer.from([0x22, 0xff, 0x22]),
        Buffer.from('{"name":"\xc3","slug":"x"}', "latin1"),
        // Half of a pair, and a letter in more bytes than it needs.
        Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]),
        Buffer.from([0x22, 0xc1, 0x81, 0x22])
      ]
      const places = [
        ["/v1/orgs/main/projects", {}],
        ["/v1/orgs/main/projects", { "idempotency-key": "broken" }],
        ["/v1/orgs/main/manifest/plan", {}],
        ["/v1/orgs/main/manifest/plan", { "content-type": "application/yaml" }],
        ["/v1/auth/sign-in", {}]
      ] as const
      for (const [path, headers] of places) {
        for (const bytes of broken) {
          const { status, body } = yield* send(path, bytes, headers)
          assert.strictEqual(status, 400, path)
          assert.propertyVal(body, "code", "malformed_body")
          assert.propertyVal(body, "detail", "The body is not valid UTF-8")
        }
        for (const encoding of ["gzip", "br", "x-nothing", "gzip, identity"]) {
          const refused = yield* send(path, "{}", { ...headers, "content-encoding": encoding })
          assert.strictEqual(refused.status, 415, `${path} ${encoding}`)
          assert.propertyVal(refused.body, "code", "unsupported_content_encoding")
          assert.strictEqual(refused.headers.get("accept-encoding"), "identity")
        }
      }
      const plain = yield* send("/v1/orgs/main/projects", '{"name":"Zoë","slug":"plain"}', {
        "content-encoding": "identity",
        "idempotency-key": "broken"
      })
      assert.strictEqual(plain.status, 201)
      assert.isNotEmpty(session)
    })
  )

  it.effect(
    "a value that is not one of those allowed is told which are, in a request and in a manifest",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const project = { name: "Shop", slug: "literal", runtimeClass: "sometimes" }
        const faults = (path: string, body: unknown) =>
          Effect.map(call("POST", path, { body }), ({ status, body: { errors } }) => [
            status,
            ...errors.map(({ pointer, message }: Record<string, string>) => `${pointer} ${message}`)
          ])
        const allowed = 'must be one of "scale-to-zero", "always-on"'
        assert.deepStrictEqual(yield* faults("/v1/orgs/main/projects", project), [
          422,
          `/runtimeClass ${allowed}`
        ])
        const manifest = { version: 2, organization: "main", projects: [project] }
        assert.deepStrictEqual(yield* faults("/v1/orgs/main/manifest/plan", manifest), [
          422,
          "/version must be 1",
          `/projects/0/runtimeClass ${allowed}`
        ])
      })
  )

  it.effect("two Host fields are one too many", () =>
    Effect.gen(function* () {
      for (const second of ["evil.example", "127.0.0.1"]) {
        const answer = yield* raw(["GET /v1/health HTTP/1.1", "Host: 127.0.0.1", `host: ${second}`])
        assert.match(answer, /^HTTP\/1\.1 400 /)
        assert.include(answer, '"code":"malformed_request"')
      }
      assert.match(yield* raw(["GET /v1/health HTTP/1.1", "Host: 127.0.0.1"]), /^HTTP\/1\.1 200 /)
    })
  )

  it.effect("a path has one spelling", () =>
    Effect.gen(function* () {
      const paths = [
        "/V1/health",
        "//v1/health",
        "/v1//health",
        "/v1/Health",
        "/v1/health;a=b",
        "/v1;a=b/health"
      ]
      for (const path of [...paths, "/v1/health#top", "/v1/health;", "/Docs"]) {
        const answer = yield* raw([`GET ${path} HTTP/1.1`, "Host: 127.0.0.1"])
        assert.match(answer, /^HTTP\/1\.1 404 /, path)
        assert.include(answer, '"code":"not_found"', path)
      }
      // Names keep their case, and a query may hold what a path may not.
      const { call } = yield* Plane
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/resources?kind=Cron")).status, 200)
      assert.strictEqual((yield* call("GET", "/v1/orgs/main/resources?kind=a;b")).status, 200)
    })
  )

  it.effect("what a caller has already is not sent again", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Kept", slug: "kept" } })
      const path = "/v1/orgs/main/projects/kept"
      const first = yield* call("GET", path)
      const etag = first.headers.get("etag") ?? ""
      assert.match(etag, /^"\d+"$/)
      const again = (tags: string, method = "GET") =>
        call(method, path, { headers: { "if-none-match": tags } })
      for (const tags of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
        const answer = yield* again(tags)
        assert.deepStrictEqual([answer.status, answer.text], [304, ""], tags)
        assert.strictEqual(answer.headers.get("etag"), etag)
        assert.strictEqual(answer.headers.get("cache-control"), "no-store")
        assert.isNull(answer.headers.get("content-type"))
      }
      assert.strictEqual((yield* again(etag, "HEAD")).status, 304)
      for (const tags of ['"other"', etag.replaceAll('"', "")]) {
        assert.strictEqual((yield* again(tags)).status, 200)
      }
      yield* call("PATCH", path, { body: { name: "Changed" }, headers: { "if-none-match": "*" } })
      const changed = yield* again(etag)
      assert.deepStrictEqual([changed.status, changed.body.name], [200, "Changed"])
    })
  )

  it.effect("the documentation is sent compressed, once, and allows its own scripts only", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const ask = (headers: Record<string, string>) =>
        Effect.promise(async () => {
          const http = await import("node:http")
          return new Promise<{ status: number; headers: Record<string, unknown>; bytes: Buffer }>(
            (resolve, reject) =>
              http
                .get(`${url}/docs`, { headers }, (response) => {
                  const chunks: Array<Buffer> = []
                  response.on("data", (chunk: Buffer) => chunks.push(chunk))
                  response.on("end", () =>
                    resolve({
                      status: response.statusCode ?? 0,
                      headers: response.headers,
                      bytes: Buffer.concat(chunks)
                    })
                  )
                })
                .on("error", reject)
          )
        })
      const plain = yield* ask({})
      assert.strictEqual(plain.status, 200)
      assert.notProperty(plain.headers, "content-encoding")
      const forms = [
        ["br", "br, gzip", brotliDecompressSync],
        ["gzip", "br;q=0, gzip", gunzipSync]
      ] as const
      for (const [name, field, unpacked] of forms) {
        const packed = yield* ask({ "accept-encoding": field })
        assert.strictEqual(packed.headers["content-encoding"], name)
        assert.strictEqual(packed.headers["vary"], "accept-encoding")
        assert.isBelow(packed.bytes.length, plain.bytes.length / 3)
        assert.isTrue(unpacked(packed.bytes).equals(plain.bytes))
        const etag = String(packed.headers["etag"])
        assert.notStrictEqual(etag, plain.headers["etag"])
        const known = yield* ask({ "accept-encoding": field, "if-none-match": etag })
        assert.deepStrictEqual([known.status, known.bytes.length], [304, 0])
      }
      const policy = String(plain.headers["content-security-policy"])
      assert.match(policy, /default-src 'none'; script-src ('sha256-[^']+' ?){2};/)
      assert.notInclude(policy, "unsafe-eval")
    })
  )
})

it.live("a request that trickles in is ended after a bound, however it trickles", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(bounds, { requestMs: 60_000, headersMs: 15_000, checkMs: 5_000 })
    const usual = listener()
    assert.deepStrictEqual([usual.requestTimeout, usual.headersTimeout], [60_000, 15_000])
    const server = yield* Effect.acquireRelease(
      Effect.promise(
        () =>
          new Promise<ReturnType<typeof listener>>((resolve) => {
            const one = listener({ requestMs: 400, headersMs: 200, checkMs: 50 })
            one.on("request", (request, response) => request.resume().on("end", () => response.end("whole")))
            one.listen(0, "127.0.0.1", () => resolve(one))
          })
      ),
      (one) => Effect.sync(() => one.close())
    )
    const address = server.address()
    if (address === null || typeof address === "string") return yield* Effect.die("no port")
    const trickle = (start: string, drop: string) =>
      exchange(address.port, (socket) => {
        socket.write(start)
        const timer = setInterval(() => socket.write(drop), 20)
        socket.on("close", () => clearInterval(timer))
      })
    const head = "POST / HTTP/1.1\r\nhost: x\r\n"
    const ended = yield* Effect.all(
      [
        trickle(`${head}content-length: 1000000\r\n\r\n`, "a"),
        trickle(`${head}transfer-encoding: chunked\r\n\r\n`, "1\r\na\r\n"),
        trickle(head, "a: b\r\n")
      ],
      { concurrency: 3 }
    )
    for (const answer of ended) assert.match(answer, /^HTTP\/1\.1 408 /)
    const whole = yield* exchange(address.port, (socket) =>
      socket.write(`${head}connection: close\r\ncontent-length: 1\r\n\r\na`)
    )
    assert.match(whole, /^HTTP\/1\.1 200 /)
  }).pipe(Effect.scoped)
)
