import * as net from "node:net"
import { assert, it, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Names, NameUnknown } from "#src/outbound/names.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { receiver } from "./receiver.ts"

/** What these names resolve to, and how often they were asked for. */
const asked: Array<string> = []
const book = new Map<string, ReadonlyArray<ReadonlyArray<string>>>([
  ["here.example.test", [["127.0.0.1"]]],
  ["private.example.test", [["10.1.2.3"], ["127.0.0.1"]]],
  // The first answer passes, the second does not: that of a name server which bets on being asked twice.
  ["rebinding.example.test", [["127.0.0.1"], ["169.254.169.254"]]],
  ["mixed.example.test", [["192.168.1.1", "127.0.0.1"]]],
  ["metadata.example.test", [["169.254.169.254", "fd00:ec2::254"]]]
])
const names = Layer.succeed(Names, (name: string) =>
  Effect.suspend(() => {
    const before = asked.filter((other) => other === name).length
    asked.push(name)
    const answers = book.get(name)
    const answer = answers?.[Math.min(before, answers.length - 1)]
    return answer === undefined
      ? new NameUnknown({ message: `The name ${name} has no address` })
      : Effect.succeed(answer)
  })
)

const secrets = memorySecrets()
const authority = CertificateAuthority.layer.pipe(Layer.provide(secrets.layer))
const outboundWith = (outboundAllow: ReadonlyArray<string>) =>
  Outbound.layer.pipe(
    Layer.provide(AppConfig.layerWith({ outboundAllow })),
    Layer.provide(names),
    Layer.provideMerge(authority),
    Layer.provide(Logger.layer([]))
  )

const send = Effect.fnUntraced(function* (
  url: string,
  more: { timeoutMs?: number; maxAnswerBytes?: number } = {}
) {
  const outbound = yield* Outbound
  return yield* outbound.post({
    url,
    headers: { "content-type": "application/json" },
    body: "{}",
    timeoutMs: 60_000,
    ...more
  })
})
const refused = (url: string) =>
  Effect.map(Effect.flip(send(url)), (error) => {
    assert.strictEqual(error._tag, "OutboundRefused", `${url}: ${error.message}`)
    return error.message
  })
const failed = (url: string, more: { timeoutMs?: number } = {}) =>
  Effect.map(Effect.flip(send(url, more)), (error) => {
    if (error._tag !== "OutboundFailed") assert.fail(`${url}: ${error.message}`)
    return error
  })

layer(outboundWith(["127.0.0.0/8", "::1/128"]), { excludeTestServices: true })(
  "a machine that allows itself",
  (it) => {
    it.effect("reaches what the platform's own authority vouches for, by name and by address", () =>
      Effect.gen(function* () {
        const there = yield* receiver(undefined, { hosts: ["here.example.test", "127.0.0.1"] })
        const answer = yield* send(`${there.url("here.example.test")}/hook?a=1`)
        assert.strictEqual(answer.status, 204)
        assert.isAtLeast(answer.durationMs, 0)
        assert.strictEqual((yield* send(there.url())).status, 204)
        const [byName, byAddress] = there.received
        assert.deepStrictEqual(
          [byName?.method, byName?.path, byName?.body, byName?.servername, byName?.headers.host],
          ["POST", "/hook?a=1", "{}", "here.example.test", `here.example.test:${there.port}`]
        )
        assert.strictEqual(byAddress?.headers.host, `127.0.0.1:${there.port}`)
      })
    )

    it.effect("does not talk to a server whose certificate is for another name", () =>
      Effect.gen(function* () {
        const there = yield* receiver(undefined, { hosts: ["other.example.test"] })
        const error = yield* failed(there.url("here.example.test"))
        assert.strictEqual(error.reason, "connection")
        assert.match(error.message, /altnames/)
        assert.lengthOf(there.received, 0)
      })
    )

    it.effect("resolves a name once and connects to what was judged", () =>
      Effect.gen(function* () {
        const there = yield* receiver(undefined, { hosts: ["rebinding.example.test"] })
        asked.length = 0
        assert.strictEqual((yield* send(there.url("rebinding.example.test"))).status, 204)
        assert.deepStrictEqual(asked, ["rebinding.example.test"])
        // Although a connection to it is still open.
        assert.match(yield* refused(there.url("rebinding.example.test")), /169\.254\.169\.254/)
        assert.lengthOf(there.received, 1)
      })
    )

    it.effect("goes only to those addresses of a name that pass", () =>
      Effect.gen(function* () {
        const there = yield* receiver(undefined, { hosts: ["mixed.example.test"] })
        assert.strictEqual((yield* send(there.url("mixed.example.test"))).status, 204)
        assert.match(yield* refused("https://metadata.example.test/"), /link/)
        asked.length = 0
        assert.match(yield* refused("https://private.example.test/"), /10\.1\.2\.3\) is a private address/)
      })
    )

    it.effect("follows no redirect", () =>
      Effect.gen(function* () {
        const target = yield* receiver()
        const there = yield* receiver((_, response) => {
          response.writeHead(307, { location: target.url() }).end("elsewhere")
        })
        const answer = yield* send(there.url())
        assert.deepStrictEqual(
          [answer.status, answer.body, answer.headers.location],
          [307, "elsewhere", target.url()]
        )
        assert.lengthOf(target.received, 0)
      })
    )

    it.effect("reads an answer up to its bound and no longer than its time", () =>
      Effect.gen(function* () {
        const endless = yield* receiver((_, response) => {
          response.writeHead(200)
          const more = () => {
            while (!response.destroyed && response.write("x".repeat(65_536)));
            if (!response.destroyed) response.once("drain", more)
          }
          more()
        })
        assert.lengthOf((yield* send(endless.url(), { maxAnswerBytes: 1000 })).body, 1000)
        const silent = yield* receiver(() => {})
        assert.strictEqual((yield* failed(silent.url(), { timeoutMs: 200 })).reason, "timeout")
        // Also when headers came, and one byte now and then.
        const dripping = yield* receiver((_, response) => {
          response.writeHead(200)
          const timer = setInterval(() => response.write("."), 20)
          response.on("close", () => clearInterval(timer))
        })
        assert.strictEqual((yield* failed(dripping.url(), { timeoutMs: 300 })).reason, "timeout")
      })
    )

    /** A connection is kept for the next request a moment after its answer was read. */
    const kept = Effect.sleep("50 millis")

    it.effect("uses a connection again, and makes a new one when the other end has closed it", () =>
      Effect.gen(function* () {
        const sockets = new Set<unknown>()
        let refusals = 0
        const there = yield* receiver((request, response) => {
          sockets.add(response.socket)
          // As it looks to us when an idle connection is closed just before we use it.
          if (request.path === "/closed" && refusals++ === 0) return void response.socket?.destroy()
          response.writeHead(200).end("fine")
        })
        for (const path of ["/1", "/2", "/3"]) {
          assert.strictEqual((yield* send(`${there.url()}${path}`)).status, 200)
          yield* kept
        }
        // However long this process is kept from seeing it: by this clock it was closed at once.
        const real = yield* Clock.Clock
        const closed = send(`${there.url()}/closed`).pipe(
          Effect.provideService(Clock.Clock, {
            ...real,
            sleep: (duration) => real.sleep(duration),
            currentTimeMillisUnsafe: () => 0,
            currentTimeMillis: Effect.succeed(0),
            currentTimeNanosUnsafe: () => 0n,
            currentTimeNanos: Effect.succeed(0n)
          })
        )
        assert.strictEqual((yield* closed).status, 200)
        assert.strictEqual(there.received.filter(({ path }) => path === "/closed").length, 2)
        assert.strictEqual(sockets.size, 2)
      })
    )

    it.effect("does not ask again by itself when somebody vanishes who had begun to work on it", () =>
      Effect.gen(function* () {
        const there = yield* receiver((request, response) => {
          if (request.path !== "/work") return void response.writeHead(200).end("fine")
          setTimeout(() => response.socket?.destroy(), 400)
        })
        assert.strictEqual((yield* send(there.url())).status, 200)
        yield* kept
        assert.strictEqual((yield* failed(`${there.url()}/work`)).reason, "connection")
        assert.strictEqual(there.received.filter(({ path }) => path === "/work").length, 1)
      })
    )

    it.effect("tells a name that nobody knows from a server that is not there", () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* failed("https://nobody.example.test/")).reason, "name")
        const port = yield* Effect.promise(
          () =>
            new Promise<number>((resolve) => {
              const server = net.createServer().listen(0, "127.0.0.1", () => {
                const address = server.address()
                server.close(() =>
                  resolve(typeof address === "object" && address !== null ? address.port : 0)
                )
              })
            })
        )
        assert.strictEqual((yield* failed(`https://127.0.0.1:${port}/`)).reason, "connection")
      })
    )

    it.effect("speaks plain HTTP with itself only", () =>
      Effect.gen(function* () {
        const there = yield* receiver(undefined, { plain: true })
        assert.strictEqual((yield* send(there.url())).status, 204)
        assert.match(yield* refused("http://93.184.216.34/"), /https/)
      })
    )
  }
)

layer(outboundWith([]), { excludeTestServices: true })("a machine that allows nothing", (it) => {
  it.effect("goes to no address that is not public, however it is written", () =>
    Effect.gen(function* () {
      const there = yield* receiver()
      for (const host of [
        "127.0.0.1",
        "localhost",
        "a.localhost",
        "localhost.",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        "[::]",
        "①②⑦.⓪.⓪.①"
      ]) {
        yield* refused(there.url(host))
      }
      for (const host of [
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.31.255.255",
        "192.168.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[5f00::1]",
        "[100::1]",
        "here.example.test"
      ]) {
        yield* refused(`https://${host}/`)
      }
      assert.lengthOf(there.received, 0)
    })
  )

  it.effect("says beforehand what is wrong with an address", () =>
    Effect.gen(function* () {
      const { checkAddress } = yield* Outbound
      for (const [url, why] of [
        ["nonsense", /is no URL/],
        ["ftp://example.com/", /not an https URL/],
        ["http://example.com/", /not an https URL/],
        ["https://user:hunter2@example.com/", /password/],
        ["https://10.0.0.1/", /private/],
        ["https://localhost/", /this machine/]
      ] as const) {
        const { message } = yield* Effect.flip(checkAddress(url))
        assert.match(message, why)
        assert.notInclude(message, "hunter2")
      }
      assert.strictEqual((yield* checkAddress("https://example.com/hook")).host, "example.com")
      assert.strictEqual((yield* checkAddress("https://93.184.216.34/")).hostname, "93.184.216.34")
    })
  )
})

layer(outboundWith(["169.254.0.0/16", "fe80::/10", "10.0.0.0/8", "0.0.0.0/0"]), {
  excludeTestServices: true
})("a machine that allows much", (it) => {
  it.effect("still does not go to link-local and metadata addresses", () =>
    Effect.gen(function* () {
      const { checkAddress } = yield* Outbound
      assert.strictEqual((yield* checkAddress("https://10.0.0.1/")).hostname, "10.0.0.1")
      for (const host of ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "100.100.100.200"]) {
        yield* Effect.flip(checkAddress(`https://${host}/`))
      }
    })
  )
})

it.effect("a range that is none stops the start with one line that names it", () =>
  Effect.gen(function* () {
    const read = (value: string) =>
      Effect.map(AppConfig, ({ outboundAllow }) => outboundAllow).pipe(
        Effect.provide(AppConfig.layerFrom({ SVC_OUTBOUND_ALLOW: value }))
      )
    assert.deepStrictEqual(yield* read("10.0.0.0/8, fd00::/8"), ["10.0.0.0/8", "fd00::/8"])
    assert.match(String(yield* Effect.flip(read("10.0.0.0/8,10.0.0.1"))), /SVC_OUTBOUND_ALLOW.*"10\.0\.0\.1"/)
  })
)

it.effect("a set and empty list of ranges lets requests reach the public internet alone", () =>
  Effect.gen(function* () {
    for (const url of ["https://127.0.0.1/", "https://[::1]:8443/hook", "https://10.0.0.1/"]) {
      const { message } = yield* Effect.flip((yield* Outbound).checkAddress(url))
      assert.include(message, "SVC_OUTBOUND_ALLOW")
    }
    const there = yield* receiver(undefined, { hosts: ["here.example.test", "127.0.0.1"] })
    yield* refused(there.url())
    yield* refused(there.url("here.example.test"))
    assert.deepStrictEqual(there.received, [])
  }).pipe(
    Effect.provide(
      Outbound.layer.pipe(
        Layer.provide(AppConfig.layerFrom({ SVC_OUTBOUND_ALLOW: "" })),
        Layer.provide(names),
        Layer.provideMerge(authority)
      )
    )
  )
)
