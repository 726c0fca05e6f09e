/** The two protocols in which servers are asked, against servers that do not keep to them. */
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { askOnce } from "#src/infra/postgres/ask-once.ts"
import { readInfo } from "#src/infra/redis/info.ts"

/** A server on a socket that says these pieces, one after each that it is told. */
const serving = (name: string, pieces: ReadonlyArray<string | Buffer>, ends = false) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
      const heard: Array<string> = []
      const sockets = new Set<net.Socket>()
      const server = net.createServer((socket) => {
        sockets.add(socket)
        let next = 0
        socket.on("error", () => undefined)
        socket.on("data", (chunk) => {
          heard.push(chunk.toString("latin1"))
          const piece = pieces[next++]
          if (piece !== undefined) socket.write(piece)
          if (ends && next >= pieces.length) socket.end()
        })
      })
      await new Promise<void>((done) => server.listen(path.join(folder, name), done))
      return { folder, heard, server, sockets }
    }),
    ({ folder, server, sockets }) =>
      Effect.promise(async () => {
        for (const one of sockets) one.destroy()
        await new Promise((done) => server.close(done))
        fs.rmSync(folder, { recursive: true, force: true })
      })
  )

const message = (kind: string, body: Buffer) => {
  const head = Buffer.alloc(5)
  head.write(kind, "latin1")
  head.writeInt32BE(4 + body.length, 1)
  return Buffer.concat([head, body])
}
const ready = message("Z", Buffer.from("I"))
const authenticated = (kind: number) => {
  const body = Buffer.alloc(4)
  body.writeInt32BE(kind)
  return message("R", body)
}
const row = (text: string | null) => {
  const value = Buffer.from(text ?? "")
  const head = Buffer.alloc(6)
  head.writeInt16BE(1)
  head.writeInt32BE(text === null ? -1 : value.length, 2)
  return message("D", Buffer.concat([head, value]))
}
const greeting = Buffer.concat([authenticated(0), message("S", Buffer.from("a\0b\0")), ready])

const askPostgres = (pieces: ReadonlyArray<Buffer>, ends = false) =>
  Effect.gen(function* () {
    // It is told all at once.
    const said = Buffer.concat(pieces.map((piece) => Buffer.from(piece)))
    const { folder, heard } = yield* serving(".s.PGSQL.7", [said], ends)
    const answer = yield* Effect.result(askOnce({ socketDir: folder, port: 7 }, "select 1", 500))
    return {
      answer:
        answer._tag === "Success" ? answer.success : `${answer.failure.code}: ${answer.failure.message}`,
      heard
    }
  }).pipe(Effect.scoped)

it.live("a database server's answer is the first column of its row", () =>
  Effect.gen(function* () {
    const whole = Buffer.concat([row("é {}"), message("C", Buffer.from("SELECT 1\0")), ready])
    const { answer, heard } = yield* askPostgres([greeting, whole])
    assert.strictEqual(answer, "é {}")
    assert.include(heard[0], "user\0svc_control\0database\0postgres\0")
    assert.include(heard[0], "statement_timeout\0" + "500\0")
    assert.include(heard[0], "select 1\0")
    assert.strictEqual((yield* askPostgres([greeting, Buffer.concat([row(null), ready])])).answer, undefined)
    assert.strictEqual((yield* askPostgres([greeting, ready])).answer, undefined)
  })
)

it.live("what a database server says instead is an error", () =>
  Effect.gen(function* () {
    const refusal = message("E", Buffer.from("SFATAL\0C57P03\0Mstarting up\0\0"))
    assert.strictEqual(
      (yield* askPostgres([refusal])).answer,
      "57P03: The database server refused: starting up"
    )
    assert.match(String((yield* askPostgres([authenticated(10)])).answer), /^28000: /)
    assert.match(String((yield* askPostgres([greeting, Buffer.alloc(300_000, 1)])).answer), /said too much/)
    assert.match(
      String((yield* askPostgres([Buffer.from("HTTP/1.1 400\r\n\r\n")], true)).answer),
      /closed|too much|protocol/
    )
    assert.match(String((yield* askPostgres([Buffer.from("Z\0\0\0\0")])).answer), /another protocol/)
    assert.match(String((yield* askPostgres([greeting], true)).answer), /closed the connection/)
    const nobody = yield* Effect.flip(askOnce({ socketDir: os.tmpdir(), port: 1 }, "select 1", 500))
    assert.strictEqual(nobody.code, "ENOENT")
  })
)

it.live("who does not wait any longer leaves no connection", () =>
  Effect.gen(function* () {
    const { folder, sockets } = yield* serving(".s.PGSQL.7", [])
    yield* Effect.timeoutOption(askOnce({ socketDir: folder, port: 7 }, "select 1", 500), "50 millis")
    yield* Effect.promise(
      () =>
        new Promise<void>((done) =>
          Promise.all(
            [...sockets].map((one) => one.closed || new Promise((end) => one.once("close", end)))
          ).then(() => done())
        )
    )
  }).pipe(Effect.scoped)
)

const askRedis = (pieces: ReadonlyArray<string>, ends = false) =>
  Effect.gen(function* () {
    const { folder, heard } = yield* serving("s", pieces, ends)
    const endpoint = { socket: path.join(folder, "s"), password: Redacted.make("secret") }
    const answer = yield* Effect.result(readInfo(endpoint, ["server", "stats"]))
    return {
      answer: answer._tag === "Success" ? Object.fromEntries(answer.success) : answer.failure.reason,
      heard
    }
  }).pipe(Effect.scoped)
const bulk = (text: string) => `$${text.length}\r\n${text}\r\n`

it.live(
  "a cache server's answer is its names and values, and anything else an error without the password",
  () =>
    Effect.gen(function* () {
      const { answer, heard } = yield* askRedis([`+OK\r\n${bulk("# Server\r\nrun_id:abc\r\npath:/a:b\r\n")}`])
      assert.deepStrictEqual(answer, { run_id: "abc", path: "/a:b" })
      assert.include(heard[0], "*3\r\n$4\r\nINFO\r\n$6\r\nserver\r\n$5\r\nstats\r\n")
      assert.strictEqual((yield* askRedis(["-WRONGPASS invalid\r\n-NOAUTH x\r\n"])).answer, "refused")
      assert.strictEqual((yield* askRedis(["+OK\r\n-BUSY a script\r\n"])).answer, "busy")
      assert.strictEqual((yield* askRedis(["x".repeat(300_000)])).answer, "failed")
      assert.strictEqual((yield* askRedis(["+OK\r\n$100\r\nshort"], true)).answer, "failed")
      const gone = yield* Effect.flip(
        readInfo({ socket: "/nowhere/s", password: Redacted.make("secret") }, [])
      )
      assert.strictEqual(gone.reason, "closed")
      assert.notInclude(JSON.stringify(gone), "secret")
    })
)
