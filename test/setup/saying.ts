/** A server that says a word to whoever connects, and hangs up. */
import * as net from "node:net"
import * as Effect from "effect/Effect"

/** Answers its port: on all addresses of this machine, or only on the one named. */
export const saying = (word: string, address?: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<net.Server>((resume) => {
        const server = net.createServer((socket) => {
          // A caller that reset the connection is not this server's failure, nor the test's.
          socket.on("error", () => undefined)
          socket.end(word)
        })
        server.once("error", (error) => resume(Effect.die(error)))
        server.listen(0, address, () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => server.close())
    ),
    (server) => {
      const at = server.address()
      if (at === null || typeof at === "string") throw new Error("a server on a port has an address")
      return at.port
    }
  )
