/**
 * What one process of this machine may do at a time, whichever users' processes there are. The kernel keeps it: a name in
 * the abstract namespace of Unix sockets (unix(7)) is bound once, and free again the moment its process ends, however that
 * ends. Other systems than Linux have none; there every process has its way.
 */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"

/** Milliseconds between two attempts, at least and at most. */
const pauseMs = [400, 600] as const

const tryBind = (name: string) =>
  Effect.callback<net.Server | undefined>((resume) => {
    const server = net.createServer((socket) => socket.destroy())
    server.once("error", () => resume(Effect.succeed(undefined)))
    server.listen({ path: `\0${name}`, exclusive: true }, () => {
      server.unref()
      resume(Effect.succeed(server))
    })
  })

/** Waits until nobody else holds the name, and holds it until the scope ends. Only between attempts is it interrupted. */
export const hostLock = (name: string): Effect.Effect<void, never, Scope.Scope> =>
  process.platform === "linux"
    ? Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          for (;;) {
            const server = yield* tryBind(name)
            if (server !== undefined)
              return yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
            yield* restore(Effect.flatMap(Random.nextBetween(...pauseMs), (ms) => Effect.sleep(ms)))
          }
        })
      )
    : Effect.void
