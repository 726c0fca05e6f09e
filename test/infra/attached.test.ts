import { randomUUID } from "node:crypto"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { attached } from "#src/infra/containers/attached.ts"

/** An engine's end of a connection, and what comes of it at ours. */
const connect = async (engine: (socket: net.Socket) => void): Promise<net.Socket> => {
  const place = path.join(os.tmpdir(), `svc-attached-${randomUUID()}.sock`)
  const server = net.createServer(engine)
  await new Promise<void>((resolve) => server.listen(place, resolve))
  const connection = net.connect(place)
  await new Promise<void>((resolve) => connection.once("connect", resolve))
  server.close()
  return connection
}

const readAll = async (stream: AsyncIterable<Buffer>): Promise<number> => {
  let bytes = 0
  for await (const piece of stream) bytes += piece.length
  return bytes
}

const input = Buffer.alloc(700_000, "x")

describe("what a program prints", () => {
  it("is there as a whole when it never read what it was given", async () => {
    const connection = await connect((socket) => {
      socket.on("error", () => undefined)
      socket.pause()
      socket.end(Buffer.alloc(300_000, "y"), () => socket.destroy())
    })
    assert.strictEqual(await readAll(attached(connection, input)), 300_000)
  })

  it("comes as fast as it is read, and is all there at the end", async () => {
    const connection = await connect((socket) => {
      let got = 0
      socket.on("data", (piece) => {
        got += piece.length
        if (got === input.length) socket.end(Buffer.alloc(8_000_000, "y"))
      })
    })
    assert.strictEqual(await readAll(attached(connection, input)), 8_000_000)
  })

  it("is not taken for complete when the engine breaks off", async () => {
    const connection = await connect((socket) => {
      socket.on("error", () => undefined)
      socket.write("begun")
    })
    const printed = attached(connection, undefined)
    connection.destroy(new Error("broken"))
    let seen: unknown
    await readAll(printed).catch((error: unknown) => {
      seen = error
    })
    assert.match(String(seen), /broken/)
  })
})
