/**
 * Starts HAProxy from the files in its folder, before the state store is asked: apps that were mapped when the machine
 * stopped answer again though the store cannot be had. `Node.ts` brings it to what the store says once that is there.
 */
import * as dgram from "node:dgram"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { configName, edgePlace, makeHaproxy } from "#src/infra/haproxy/process.ts"
import { Host } from "#src/infra/host/Host.ts"

/** Of the agent by TCP and of its log by UDP. */
export const agentPort = Effect.flatMap(Host, (host) => host.reservePort("edge/agent"))

/**
 * Holds the port of the log, which nobody else holds as long as no process has the turn (`listener.ts`). False: one does,
 * and starts HAProxy itself. That of the agent would take requests of which nothing could become.
 */
const holdTurn = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<dgram.Socket | undefined>((resume) => {
      const socket = dgram.createSocket("udp4")
      socket.once("error", () => {
        socket.close()
        resume(Effect.succeed(undefined))
      })
      socket.bind(port, "127.0.0.1", () => resume(Effect.succeed(socket)))
    }),
    (socket) =>
      Effect.callback<void>((resume) =>
        socket === undefined ? resume(Effect.void) : void socket.close(() => resume(Effect.void))
      )
  ).pipe(Effect.map((socket) => socket !== undefined))

const start = Effect.gen(function* () {
  const host = yield* Host
  const place = edgePlace(host)
  const haproxy = makeHaproxy(host)
  const isNew = Option.isNone(yield* host.readFile(path.join(place.dir, configName)))
  if (isNew || (yield* haproxy.processes(place)).length > 0) return
  if (!(yield* holdTurn(yield* agentPort))) return
  yield* haproxy.start(place)
  yield* Effect.logDebug("the edge listens, with what it served last")
})

/** What keeps it from starting keeps nothing else: the node starts it again from new files. */
export const layer = Layer.effectDiscard(
  Effect.catch(Effect.scoped(start), (error) =>
    Effect.logWarning("the edge did not start with what it served last", error)
  )
)
