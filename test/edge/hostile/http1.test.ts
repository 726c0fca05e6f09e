import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { eventually } from "#test/setup/wait.ts"
import { sendBytes, statusesOf } from "./raw-client.ts"
import { environment, other, shop, World, world } from "./world.ts"

const host = `Host: ${shop}\r\n`
const chunked = "Transfer-Encoding: chunked\r\n"
const smuggled = `GET /smuggled HTTP/1.1\r\n${host}\r\n`
/** A request with these header fields, which begins like any other. */
const post = (fields: string, body = "") => `POST /refused HTTP/1.1\r\n${host}${fields}\r\n${body}`
const get = (fields: string, target = "/refused") => `GET ${target} HTTP/1.1\r\n${fields}\r\n`

/** What an edge and an app may understand in two ways, and how it is answered. */
const refused: Readonly<Record<string, readonly [text: string, status: number]>> = {
  "two lengths": [post("Content-Length: 5\r\nContent-Length: 6\r\n", "abcdef"), 400],
  "a list of lengths": [post("Content-Length: 5, 6\r\n", "abcdef"), 400],
  "a length with a sign": [post("Content-Length: +5\r\n", "abcde"), 400],
  "a negative length": [post("Content-Length: -1\r\n", smuggled), 400],
  "a hexadecimal length": [post("Content-Length: 0x5\r\n", "abcde"), 400],
  "an empty length": [post("Content-Length:\r\n", smuggled), 400],
  "a length beyond 64 bits": [post("Content-Length: 18446744073709551621\r\n", "abcde"), 400],
  "a space before the colon": [post("Content-Length : 5\r\n", "abcde"), 400],
  "an unknown transfer coding": [post("Transfer-Encoding: xchunked\r\n", `0\r\n\r\n${smuggled}`), 400],
  "another coding after chunked": [post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), 400],
  "two transfer codings": [post(`${chunked}Transfer-Encoding: identity\r\n`, "0\r\n\r\n"), 400],
  "a coding after a control character": [
    post("Transfer-Encoding: \x0bchunked\r\nContent-Length: 3\r\n", "abc"),
    400
  ],
  "a coding and a length": [post("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", "abc"), 400],
  "chunks in HTTP/1.0": [
    `POST /refused HTTP/1.0\r\n${host}${chunked}Connection: keep-alive\r\n\r\n0\r\n\r\n${smuggled}`,
    400
  ],
  "a chunk without a size": [post(chunked, "zz\r\nabc\r\n0\r\n\r\n"), 400],
  "a chunk beyond 64 bits": [post(chunked, "ffffffffffffffff1\r\nabc\r\n0\r\n\r\n"), 400],
  "two hosts": [get(`${host}Host: ${other}\r\n`), 400],
  "no host": [get(""), 400],
  "an empty host": [get("Host: \r\n"), 400],
  "a list of hosts": [get(`Host: ${shop}, ${other}\r\n`), 400],
  "a user before the host": [get(`Host: ${other}@${shop}\r\n`), 400],
  "a password before another host": [get(`Host: ${shop}:1@${other}\r\n`), 400],
  "a path after the host": [get(`Host: ${shop}/x\r\n`), 400],
  "the URI of another host": [get(host, `http://${other}/refused`), 400],
  "the secure URI of another host": [get(host, `https://${other}/refused`), 400],
  "a URI with another host after an at sign": [get(host, `https://${shop}@${other}/refused`), 400],
  "a host that is not that of the handshake": [get(`Host: ${other}\r\n`), 421],
  "that host in both places": [get(`Host: ${other}\r\n`, `https://${other}/refused`), 421],
  "a field that begins with a space": [`GET /refused HTTP/1.1\r\n Host: ${shop}\r\n\r\n`, 400],
  "a carriage return within a field": [get(`${host}X-A: b\rX-Svc-User: evil\r\n`), 400],
  "a NUL": [get(`${host}X-A: b\0c\r\n`), 400],
  "a field without a name": [get(`${host}: x\r\n`), 400],
  "a line without a colon": [get(`${host}smuggled\r\n`), 400],
  "a space in the target": [get(host, "/refused HTTP/1.1 /smuggled"), 400],
  "a fragment": [get(host, "/refused#a"), 400],
  "HTTP/0.9": ["GET /refused\r\n", 400],
  "a tunnel to another host": [`CONNECT ${other}:443 HTTP/1.1\r\n${host}\r\n`, 400],
  "a tunnel to the app": [`CONNECT ${shop}:443 HTTP/1.1\r\n${host}\r\n`, 405],
  TRACE: [`TRACE /refused HTTP/1.1\r\n${host}\r\n`, 405],
  "two tickets": [get(`${host}Cookie: __Host-svc_access=a; __Host-svc_access=b\r\n`), 400],
  "too long a field": [get(`${host}X-A: ${"a".repeat(20_000)}\r\n`), 400],
  "too many fields": [get(host + "X-A: a\r\n".repeat(300)), 400],
  "header fields that do not come to an end": [`GET /refused HTTP/1.1\r\n${host}X-A`, 408]
}

const concurrency = 8

layer(world, { excludeTestServices: true })("an app behind the edge, over HTTP/1.1", (it) => {
  it.effect("is not sent what may be understood in two ways", () =>
    Effect.gen(function* () {
      const { proxy, saw, nothingSlippedThrough } = yield* World
      yield* Effect.forEach(
        Object.entries(refused),
        ([name, [text, status]]) =>
          Effect.promise(async () => {
            const answer = await sendBytes(proxy, shop, text, status === 408 ? 4_000 : undefined)
            assert.deepStrictEqual(statusesOf(answer), [status], name)
          }),
        { concurrency, discard: true }
      )
      assert.deepStrictEqual(saw("/refused"), [])
      nothingSlippedThrough()
    })
  )

  it.effect("is sent one request where a message was one, whatever follows", () =>
    Effect.gen(function* () {
      const { proxy, saw, nothingSlippedThrough } = yield* World
      const sent: Readonly<Record<string, readonly [string, body: string, after?: number]>> = {
        // RFC 9112, section 6.3: the coding counts. What follows is no request: the connection ends.
        "/cl-te": [`Content-Length: 6\r\n${chunked}\r\n0\r\n\r\n${smuggled}`, "0\r\n\r\n"],
        "/te-cl": [
          `${chunked}Content-Length: 4\r\n\r\n2f\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\nX-A: 12345\r\n\r\n\r\n0\r\n\r\n`,
          "2F\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\nX-A: 12345\r\n\r\n\r\n0\r\n\r\n"
        ],
        "/same-lengths": ["Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", "abcde"],
        "/extension": [`${chunked}\r\n3;a="\r\nabc\r\n0\r\n\r\n`, "3\r\nabc\r\n0\r\n\r\n"],
        "/line-feeds": [`${chunked}\r\n3\nabc\n0\n\n`, "3\r\nabc\r\n0\r\n\r\n"],
        "/other-next": [`Content-Length: 0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: ${other}\r\n\r\n`, "", 421]
      }
      yield* Effect.forEach(
        Object.entries(sent),
        ([target, [rest, body, after]]) =>
          Effect.promise(async () => {
            const answer = await sendBytes(proxy, shop, `POST ${target} HTTP/1.1\r\n${host}${rest}`)
            assert.deepStrictEqual(statusesOf(answer), after === undefined ? [200] : [200, after], target)
            assert.deepStrictEqual(
              saw(target).map((request) => request.body),
              [body],
              target
            )
          }),
        { concurrency, discard: true }
      )
      nothingSlippedThrough()
    })
  )

  it.effect("sees fields in one form, and nothing in the platform's name that a visitor wrote", () =>
    Effect.gen(function* () {
      const { proxy, saw, nothingSlippedThrough } = yield* World
      const ask = (target: string, fields: string) =>
        Effect.promise(async () => {
          const answer = await sendBytes(proxy, shop, `GET ${target} HTTP/1.1\r\n${host}${fields}\r\n`)
          assert.deepStrictEqual(statusesOf(answer), [200], target)
          const [path = ""] = target.replace(`https://${shop}`, "").split("?")
          const [request, ...more] = saw(path)
          assert.deepStrictEqual(more, [])
          const [, , ...rest] = request?.head.split("\r\n") ?? []
          const usual =
            /^(x-forwarded-(for: 127\.0\.0\.1|proto: https|host: shop\.apps\.localhost)|x-svc-via: .*)$/
          return rest.filter((field) => !usual.test(field))
        })
      const forged = [
        ...["X-Svc-User", "X_Svc_User", "x-svc_user", "X_SVC-USER", "X-Svc-Edge-Key", "X-Svc-Edge-Client"],
        ...[
          "X-Forwarded-For",
          "X_Forwarded_For",
          "X-Forwarded-Host",
          "X-Forwarded-Proto",
          "X-Forwarded-Port"
        ],
        ...["Forwarded", "X-Real-IP", "Proxy", "Proxy-Connection", "Keep-Alive", "HTTP2-Settings"]
      ].map((name) => `${name}: evil\r\n`)
      assert.deepStrictEqual(yield* ask("/forged", forged.join("")), [])
      const listed = "Connection: X-Forwarded-For, X-Svc-Via, Host, X-Svc-User, X-Mine\r\nX-Mine: 1\r\n"
      assert.deepStrictEqual(yield* ask("/connection-list", listed), ["x-mine: 1"])
      assert.deepStrictEqual(yield* ask("/folded", "X-A: b\r\n X-Svc-User: c\r\n"), [
        "x-a: b   X-Svc-User: c"
      ])
      assert.deepStrictEqual(yield* ask("/line-feed", "X-A: b\nX-Svc-User: evil\r\n"), ["x-a: b"])
      const h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
      assert.deepStrictEqual(yield* ask("/h2c", h2c), [])
      const both = `${h2c.replace("h2c", "websocket, h2c")}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n`
      assert.deepStrictEqual(yield* ask("/h2c-too", both), ["sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="])
      assert.deepStrictEqual(yield* ask(`https://${shop}/absolute`, ""), [])
      const cookies =
        "Cookie: a=b; __Host-svc_access=x; c=d; __Host-svc_visitor=y\r\nCookie: __Host-svc_state=z; e=f\r\n"
      assert.deepStrictEqual(yield* ask("/cookies", cookies), ["cookie: a=b; c=d", "cookie: e=f"])
      assert.deepStrictEqual(yield* ask("/cookie", "Cookie: __Host-svc_access=x\r\n"), [])
      nothingSlippedThrough()
    })
  )

  it.effect("cannot be mistaken in the log for another one, whatever a visitor sends", () =>
    Effect.gen(function* () {
      const { proxy } = yield* World
      const before = proxy.logged.length
      const path = `/"],"status":204,"environment":"${environment.replace("1", "9")}",%22\\`
      for (const target of [`${path}?token=secret`, "/two", `/long${"/x".repeat(2_000)}`])
        yield* Effect.promise(() =>
          sendBytes(
            proxy,
            shop,
            `GET ${target} HTTP/1.1\r\nHost: ${shop}:443\r\nCookie: session=secret\r\n\r\n`
          )
        )
      const logged = yield* eventually(
        "all are logged",
        Effect.sync(() => proxy.logged.slice(before)),
        (all) => all.length === 3
      )
      assert.deepStrictEqual(
        logged.map((one) => [one.environment, one.host, one.method, one.status, one.end]),
        Array.from({ length: 3 }, () => [environment, shop, "GET", 200, "--"])
      )
      assert.deepStrictEqual(
        logged.map((one) => one.path),
        [path, "/two", `/long${"/x".repeat(2_000)}`.slice(0, 1024)]
      )
      assert.notInclude(JSON.stringify(logged), "secret")
    })
  )
})
