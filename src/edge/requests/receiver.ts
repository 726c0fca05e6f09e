/**
 * Takes the proxy's log of requests and stores it. Lines come by UDP, which keeps no request waiting: what comes while
 * this process stands still for long is lost, and so is what is too much. Losses are counted.
 */
import * as dgram from "node:dgram"
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
import { parseLine } from "./log-format.ts"
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

/** Bytes that wait in the system while this process does something else; it may allow less. */
const bufferBytes = 4 * 1024 * 1024
const longestStatementMs = 10_000
/** For as long as a batch waits for the store; what comes meanwhile is in the next one. */
const patience = Schedule.min([Schedule.exponential("500 millis"), Schedule.spaced("15 seconds")])
const tries = 8

/** Listens on this UDP port of 127.0.0.1, and stores what came once a second, until the scope closes. */
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
    yield* socketOn(port, (line) => {
      const parsed = parseLine(line)
      if (Option.isNone(parsed)) {
        unreadable++
        return
      }
      gaps.arrived(parsed.value.source, parsed.value.number)
      const { request } = parsed.value
      if (Option.isSome(request)) tally.add(request.value, clock.currentTimeMillisUnsafe())
    })
    yield* periodic({ does: "store requests to environments", every: "1 second" }, round)
  })

const requestsOf = ({ minutes }: Batch) => minutes.reduce((sum, { requests }) => sum + requests, 0)

const socketOn = (port: number, line: (text: string) => void) =>
  Effect.acquireRelease(
    Effect.callback<dgram.Socket, LogPortTaken>((resume) => {
      const socket = dgram.createSocket({ type: "udp4", recvBufferSize: bufferBytes })
      socket.once("error", ({ message }) => {
        socket.close()
        resume(Effect.fail(new LogPortTaken({ message: `UDP port ${port} for the edge's log: ${message}` })))
      })
      socket.bind(port, "127.0.0.1", () => {
        socket.removeAllListeners("error")
        // A datagram that could not be taken; the next one may be.
        socket.on("error", () => {})
        resume(Effect.succeed(socket))
      })
      socket.on("message", (bytes) => line(bytes.toString("latin1")))
    }),
    (socket) => Effect.callback<void>((resume) => void socket.close(() => resume(Effect.void)))
  )
