/**
 * Starts HAProxy from the files in its folder, before the state store is asked: apps that were mapped when the machine
 * stopped answer again though the store cannot be had. `Node.ts` brings it to what the store says once that is there.
 */
import * as net from "node:net"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { configName, edgePlace, makeHaproxy } from "#src/infra/haproxy/process.ts"
import { Host } from "#src/infra/host/Host.ts"

export const agentPort = Effect.flatMap(Host, (host) => host.reservePort("edge/agent"))
/** Of who takes the log of requests. */
export const logPort = Effect.flatMap(Host, (host) => host.reservePort("edge/log"))

/**
 * Holds the port of the log, which nobody else holds as long as no process has the turn (`listener.ts`). False: one does,
 * and starts HAProxy itself. That of the agent would take requests of which nothing could become.
 */
const holdTurn = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<net.Server | undefined>((resume) => {
      // What comes stays in HAProxy's memory until somebody listens who takes it.
      const server = net.createServer((socket) => void socket.destroy())
      server.once("error", () => resume(Effect.succeed(undefined)))
      server.listen({ port, host: "127.0.0.1", exclusive: true }, () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.callback<void>((resume) =>
        server === undefined ? resume(Effect.void) : void server.close(() => resume(Effect.void))
      )
  ).pipe(Effect.map((server) => server !== undefined))

const start = Effect.gen(function* () {
  const host = yield* Host
  const place = edgePlace(host)
  const haproxy = makeHaproxy(host)
  const isNew = Option.isNone(yield* host.readFile(path.join(place.dir, configName)))
  if (isNew || (yield* haproxy.processes(place)).length > 0) return
  if (!(yield* holdTurn(yield* logPort))) return
  yield* haproxy.start(place)
  yield* Effect.logDebug("the edge listens, with what it served last")
})

/** What keeps it from starting keeps nothing else: the node starts it again from new files. */
export const layer = Layer.effectDiscard(
  Effect.catch(Effect.scoped(start), (error) =>
    Effect.logWarning("the edge did not start with what it served last", error)
  )
)
