import * as net from "node:net"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { migrate } from "#src/store/migrate.ts"
import { emptyDatabase } from "#test/setup/database.ts"

/** What Postgres answers while it recovers (error code 57P03), as its protocol writes it. */
const startingUp = () => {
  const fields = Buffer.from("SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0")
  const head = Buffer.alloc(5)
  head.write("E")
  head.writeInt32BE(4 + fields.length, 1)
  return Buffer.concat([head, fields])
}

/** A way to the server that lets nobody through at first. */
const slowStart = (url: URL, refusals: number) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      let seen = 0
      const server = net.createServer((client) => {
        client.on("error", () => undefined)
        if (++seen <= refusals) return void client.once("data", () => client.end(startingUp()))
        const upstream = net.connect(Number(url.port), url.hostname)
        upstream.on("error", () => client.destroy())
        client.pipe(upstream).pipe(client)
      })
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
      const address = server.address()
      if (address === null || typeof address === "string") throw new Error("no port")
      const through = new URL(url)
      through.hostname = "127.0.0.1"
      through.port = String(address.port)
      return { server, through, seen: () => seen }
    }),
    ({ server }) => Effect.sync(() => server.close())
  )

it.live("a state store that is still starting is waited for", () =>
  Effect.gen(function* () {
    const url = new URL(Redacted.value(yield* emptyDatabase))
    const { through, seen } = yield* slowStart(url, 3)
    assert.isAbove((yield* migrate(Redacted.make(through.href))).length, 0)
    assert.isAbove(seen(), 3)
  }).pipe(Effect.scoped)
)
