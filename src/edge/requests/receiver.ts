/**
 * Takes the proxy's log of requests and stores it. The proxy keeps no request waiting for it: what does not fit into its
 * memory while this process is away or stands still is lost, and so is what is too much. Losses are counted.
 */
import * as net from "node:net"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { answered } from "#src/engine/answered.ts"
import { periodic } from "#src/loops/periodic.ts"
import { makeGaps } from "./gaps.ts"
import { lineBytes, parseLine } from "./log-format.ts"
import { RequestRecords } from "./RequestRecords.ts"
import { type Batch, makeTally } from "./tally.ts"

/** The port of the log cannot be had. */
export class LogPortTaken extends Schema.TaggedError<LogPortTaken>()("LogPortTaken", {
  message: Schema.String
}) {}

const stored = Metric.counter("svc_edge_requests_total", {
  description: "Requests to environments that were counted",
  incremental: true
})
const dropped = Metric.counter("svc_edge_requests_dropped_total", {
  description:
    "Requests that were not counted, by reason: lost (their line did not arrive), too_many (of too many environments), " +
    "not_stored (the store did not answer), unreadable (lines of somebody else)",
  incremental: true
})

/** Of the proxy and of one that it has replaced. */
const mostConnections = 16
/** The proxy says with it that lines were lost; their numbers say how many. */
const lossLine = /^\d+ events? dropped$/
/** What waited longer for somebody to take it is counted as of then. */
const oldestMs = 24 * 3_600_000
const longestStatementMs = 10_000
/** For as long as a batch waits for the store; what comes meanwhile is in the next one. */
const patience = Schedule.min([Schedule.exponential("500 millis"), Schedule.spaced("15 seconds")])
const tries = 8

/** Listens on this TCP port of 127.0.0.1, and stores what came once a second, until the scope closes. */
export const receive = (port: number): Effect.Effect<void, LogPortTaken, RequestRecords | Scope.Scope> =>
  Effect.gen(function* () {
    const records = yield* RequestRecords
    const clock = yield* Clock.Clock
    const tally = makeTally()
    const gaps = makeGaps()
    let unreadable = 0
    let waiting: Batch | undefined

    const drop = (reason: string, count: number) =>
      count === 0 ? Effect.void : Metric.update(Metric.withAttributes(dropped, { reason }), count)
    const store = Effect.gen(function* () {
      waiting ??= tally.take()
      if (waiting === undefined) return
      const batch = waiting
      yield* answered("store requests to environments", longestStatementMs)(records.add(batch))
      waiting = undefined
      yield* Metric.update(stored, requestsOf(batch))
      yield* drop("too_many", batch.lost)
    })
    const round = Effect.gen(function* () {
      yield* drop("lost", gaps.round())
      yield* drop("unreadable", unreadable)
      unreadable = 0
      yield* store.pipe(
        Effect.retry({ times: tries, schedule: Schedule.jittered(patience) }),
        Effect.tapError(() =>
          Effect.suspend(() => {
            const given = waiting
            waiting = undefined
            return given === undefined ? Effect.void : drop("not_stored", requestsOf(given) + given.lost)
          })
        )
      )
    })

    // When the scope closes: no more rounds, no more lines, and then what is left.
    yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(store, "2 seconds")))
    yield* listenOn(port, (line) => {
      if (lossLine.test(line)) return
      const parsed = parseLine(line)
      if (Option.isNone(parsed)) {
        unreadable++
        return
      }
      gaps.arrived(parsed.value.source, parsed.value.number)
      const { request, at } = parsed.value
      const now = clock.currentTimeMillisUnsafe()
      if (Option.isSome(request)) tally.add(request.value, Math.min(now, Math.max(now - oldestMs, at)))
    })
    yield* periodic({ does: "store requests to environments", every: "1 second" }, round)
  })

const requestsOf = ({ minutes }: Batch) => minutes.reduce((sum, { requests }) => sum + requests, 0)

const listenOn = (port: number, line: (text: string) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly server: net.Server; readonly open: Set<net.Socket> }, LogPortTaken>(
      (resume) => {
        const open = new Set<net.Socket>()
        const server = net.createServer((socket) => {
          open.add(socket)
          socket.on("data", linesOf(line))
          socket.on("error", () => socket.destroy())
          socket.once("close", () => open.delete(socket))
        })
        server.maxConnections = mostConnections
        server.once("error", ({ message }) =>
          resume(
            Effect.fail(new LogPortTaken({ message: `TCP port ${port} for the edge's log: ${message}` }))
          )
        )
        server.listen({ port, host: "127.0.0.1", exclusive: true }, () => {
          server.removeAllListeners("error")
          // A connection that could not be taken; the next one may be.
          server.on("error", () => {})
          resume(Effect.succeed({ server, open }))
        })
      }
    ),
    ({ server, open }) =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        for (const socket of open) socket.destroy()
      })
  )

/** The lines of one connection, whole; of one that is too long, which is nobody's, the first part counts as a line. */
const linesOf = (line: (text: string) => void) => {
  let rest = ""
  return (bytes: Buffer) => {
    const lines = (rest + bytes.toString("latin1")).split("\n")
    rest = lines.pop() ?? ""
    for (const one of lines) if (one !== "") line(one)
    if (rest.length <= lineBytes) return
    line(rest)
    rest = ""
  }
}
