/**
 * What one process of this machine may do at a time, whichever users' processes there are. The kernel keeps it: a name in
 * the abstract namespace of Unix sockets (unix(7)) is bound once, and free again the moment its process ends, however that
 * ends. Other systems than Linux have none; there every process has its way.
 */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"

const spaced = Schedule.spaced("500 millis").pipe(Schedule.jittered)

const tryBind = (name: string) =>
  Effect.callback<net.Server | undefined>((resume) => {
    const server = net.createServer((socket) => socket.destroy())
    server.once("error", () => resume(Effect.succeed(undefined)))
    server.listen({ path: `\0${name}`, exclusive: true }, () => {
      server.unref()
      resume(Effect.succeed(server))
    })
    return Effect.sync(() => server.close())
  })

/** Waits until nobody else holds the name, and holds it until the scope ends. */
export const hostLock = (name: string): Effect.Effect<void, never, Scope.Scope> =>
  process.platform === "linux"
    ? Effect.asVoid(
        Effect.acquireRelease(
          Effect.repeat(tryBind(name), { schedule: spaced, until: (server) => server !== undefined }),
          (server) => Effect.sync(() => server?.close()),
          { interruptible: true }
        )
      )
    : Effect.void
