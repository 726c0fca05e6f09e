import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type Fate, type Field, sendFrames } from "./raw-client.ts"
import { other, shop, World, world } from "./world.ts"

interface Pseudo {
  readonly method?: string
  readonly scheme?: string
  readonly authority?: string
  readonly path?: string
}
const fields = (more: ReadonlyArray<Field> = [], over: Pseudo = {}): ReadonlyArray<Field> => [
  [":method", over.method ?? "POST"],
  [":scheme", over.scheme ?? "https"],
  [":authority", over.authority ?? shop],
  [":path", over.path ?? "/refused"],
  ...more
]
const withHost = (...hosts: ReadonlyArray<string>): ReadonlyArray<Field> => [
  [":method", "GET"],
  [":scheme", "https"],
  [":path", "/refused"],
  ...hosts.map((host): Field => ["host", host])
]
const smuggled = `0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: ${shop}\r\n\r\n`
const [get, crlf] = [{ method: "GET" }, "b\r\nx-svc-user: evil"]

/** What has another meaning, or none, as HTTP/1.1 (RFC 9113, sections 8.1 to 8.3), and what becomes of it. */
const refused: Readonly<Record<string, readonly [sent: ReadonlyArray<Field>, fate: Fate, body?: string]>> = {
  "more than the length says": [fields([["content-length", "3"]]), "reset", `abc${smuggled}`],
  "less than the length says": [fields([["content-length", "30"]]), "reset", "abc"],
  "a body of no length": [fields([["content-length", "0"]]), "reset", smuggled],
  "two lengths": [
    fields([
      ["content-length", "3"],
      ["content-length", "4"]
    ]),
    "reset",
    "abc"
  ],
  "a transfer coding": [fields([["transfer-encoding", "chunked"]]), "reset", smuggled],
  "te that is not trailers": [fields([["te", "gzip"]], get), "reset"],
  "a connection field": [fields([["connection", "close"]], get), "reset"],
  "a keep-alive field": [fields([["keep-alive", "5"]], get), "reset"],
  "a proxy-connection field": [fields([["proxy-connection", "close"]], get), "reset"],
  "an upgrade field": [fields([["upgrade", "websocket"]], get), "reset"],
  "lines in a value": [fields([["x-a", crlf]], get), "reset"],
  "a line feed in a value": [fields([["x-a", "b\nx-svc-user: evil"]], get), "reset"],
  "a carriage return in a value": [fields([["x-a", "b\rc"]], get), "reset"],
  "a NUL in a value": [fields([["x-a", "b\0c"]], get), "reset"],
  "lines in a name": [fields([["x-a: b\r\nx-svc-user", "evil"]], get), "reset"],
  "a colon in a name": [fields([["x-a:b", "c"]], get), "reset"],
  "a space in a name": [fields([["x a", "b"]], get), "reset"],
  "a capital in a name": [fields([["X-A", "b"]], get), "reset"],
  "no name": [fields([["", "b"]], get), "goaway"],
  "a pseudo-header after a field": [
    fields(
      [
        ["x-a", "b"],
        [":path", "/smuggled"]
      ],
      get
    ),
    "reset"
  ],
  "two methods": [[[":method", "GET"], ...fields()], "reset"],
  "an unknown pseudo-header": [fields([[":evil", "b"]], get), "reset"],
  "the pseudo-header of an answer": [fields([[":status", "200"]], get), "reset"],
  "lines in the path": [fields([], { path: "/ HTTP/1.1\r\nHost: evil\r\n\r\nGET /smuggled" }), "reset"],
  "a space in the path": [fields([], { path: "/ HTTP/1.1 evil" }), "reset"],
  "no path": [fields([], { path: "" }), "reset"],
  "a path without a slash": [fields([], { path: "smuggled" }), "reset"],
  "a URI as the path": [fields([], { path: `https://${other}/` }), "reset"],
  "lines in the method": [fields([], { method: `GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\nGET` }), "reset"],
  "a space in the method": [fields([], { method: "GET /smuggled" }), 400],
  "a quote in the method": [fields([], { method: 'G"T' }), 400],
  "a URI as the scheme": [fields([], { scheme: "https://evil/?" }), 400],
  "lines in the scheme": [fields([], { scheme: "https\r\nx-svc-user: evil" }), "reset"],
  "lines in the authority": [fields([], { authority: `${shop}\r\nx-svc-user: evil` }), "reset"],
  "a space in the authority": [fields([], { authority: `${shop} evil` }), 400],
  "a user in the authority": [fields([], { authority: `${other}@${shop}` }), 400],
  "another authority than that of the handshake": [fields([], { authority: other }), 421],
  "another host than that of the handshake": [withHost(other), 421],
  "no host": [withHost(), 400],
  "a tunnel to another host": [
    [
      [":method", "CONNECT"],
      [":authority", `${other}:443`]
    ],
    405
  ],
  "a tunnel to the app": [
    [
      [":method", "CONNECT"],
      [":authority", `${shop}:443`]
    ],
    405
  ],
  "two tickets": [
    fields([
      ["cookie", "__Host-svc_access=a"],
      ["cookie", "__Host-svc_access=b"]
    ]),
    400
  ],
  "too long a field": [fields([["x-a", "a".repeat(16_000)]], get), "reset"]
}

layer(world, { excludeTestServices: true })("an app behind the edge, over HTTP/2", (it) => {
  it.effect("is not sent what has another meaning in HTTP/1.1", () =>
    Effect.gen(function* () {
      const { proxy, saw, nothingSlippedThrough } = yield* World
      yield* Effect.forEach(
        Object.entries(refused),
        ([name, [sent, fate, body]]) =>
          Effect.promise(async () =>
            assert.strictEqual(
              await sendFrames(proxy, shop, sent, body === undefined ? {} : { body }),
              fate,
              name
            )
          ),
        { concurrency: 8, discard: true }
      )
      assert.deepStrictEqual(saw("/refused"), [])
      nothingSlippedThrough()
    })
  )

  it.effect("sees one host, framing of the edge's own, and nothing in the platform's name", () =>
    Effect.gen(function* () {
      const { proxy, saw, nothingSlippedThrough } = yield* World
      const ask = (path: string, more: ReadonlyArray<Field>, body?: string) =>
        Effect.promise(async () => {
          const sent = fields(more, { path })
          assert.strictEqual(
            await sendFrames(proxy, shop, sent, body === undefined ? {} : { body }),
            200,
            path
          )
          const [request, ...others] = saw(path)
          assert.deepStrictEqual(others, [])
          const [, ...lines] = request?.head.split("\r\n") ?? []
          return [...lines.filter((line) => !/^x-(forwarded|svc-via)/.test(line)), request?.body]
        })
      const host = `host: ${shop}`
      assert.deepStrictEqual(yield* ask("/two-hosts", [["host", other]]), [host, ""])
      const forged = ["x-svc-user", "x_svc_user", "x-forwarded-for", "forwarded", "x-real-ip", "proxy"]
      assert.deepStrictEqual(
        yield* ask(
          "/forged",
          forged.map((name): Field => [name, "evil"])
        ),
        [host, ""]
      )
      assert.deepStrictEqual(yield* ask("/chunks", [], smuggled), [
        host,
        "transfer-encoding: chunked",
        `${smuggled.length.toString(16).toUpperCase()}\r\n${smuggled}\r\n0\r\n\r\n`
      ])
      const crumbs: ReadonlyArray<Field> = [
        ["cookie", "a=b"],
        ["cookie", "__Host-svc_access=x"],
        ["cookie", "c=d"]
      ]
      assert.deepStrictEqual(yield* ask("/cookies", crumbs), [host, "cookie: a=b; c=d", ""])
      nothingSlippedThrough()
    })
  )

  it.effect("gets no whole request where trailers are no fields", () =>
    Effect.gen(function* () {
      const { proxy, saw, nothingSlippedThrough } = yield* World
      const trailers: ReadonlyArray<Field> = [
        [":path", "/smuggled"],
        ["content-length", "5"],
        ["x-a", `b\r\n\r\n${smuggled}`]
      ]
      for (const trailer of trailers) {
        const sent = fields([], { path: "/trailers" })
        const fate = yield* Effect.promise(() =>
          sendFrames(proxy, shop, sent, { body: "abc", trailers: [trailer] })
        )
        assert.strictEqual(fate, "reset", trailer[0])
      }
      assert.deepStrictEqual(saw("/trailers"), [])
      nothingSlippedThrough()
    })
  )
})
