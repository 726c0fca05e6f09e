/** What was printed, as it is shown. */
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import type { Problem } from "#src/api/problem.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { LogReader, LogRecord, LogRef } from "./log-store.ts"

type Stream_ = LogRecord["stream"]
type Decoders = Map<Stream_, TextDecoder>

/** Characters that a piece ends within come with the next one of the same stream. */
const entryOf = (decoders: Decoders, { position, stream, at, content }: LogRecord) => {
  const decoder = decoders.get(stream) ?? new TextDecoder("utf-8", { ignoreBOM: true })
  decoders.set(stream, decoder)
  const start = Number(position)
  const end = stream === "system" ? start + 1 : start + content.length
  return {
    id: `${start}-${end}`,
    stream,
    at: at.toISOString(),
    text: decoder.decode(content, { stream: true })
  }
}

export type LogEntry = ReturnType<typeof entryOf>

export const entriesOf = (pieces: ReadonlyArray<LogRecord>): ReadonlyArray<LogEntry> => {
  const decoders: Decoders = new Map()
  const entries = pieces.map((piece) => entryOf(decoders, piece))
  // What is left at the end of a page has nothing to come with.
  for (const [stream, decoder] of decoders) {
    const rest = decoder.decode()
    const last = entries.findLast((entry) => entry.stream === stream)
    if (last !== undefined) last.text += rest
  }
  return entries
}

const most = 200
/** How long new pieces may wait: at first, and while nothing has come for long. */
const pauseMs = [300, 2_000] as const
const heartbeat = "15 seconds"

interface Position {
  readonly at: string
  readonly pause: number
}

/** Everything from a position on that is wanted, as server-sent events, until it has ended. */
export const followed = (
  ref: LogRef,
  from: string,
  read: LogReader,
  subject: Effect.Effect<object, Problem>,
  stillHolds: Effect.Effect<boolean, StoreUnavailable>,
  counted: <A>(stream: Stream.Stream<A>) => Stream.Stream<A>,
  isWanted: (entry: LogEntry) => boolean
) => {
  const decoders: Decoders = new Map()
  const holds = Effect.orElseSucceed(stillHolds, () => true)
  const next = Effect.fnUntraced(function* ({
    at,
    pause
  }: Position): Effect.fn.Return<readonly [ReadonlyArray<string>, Position | undefined], never> {
    const found = yield* Effect.result(read(ref, at, most))
    // A store that does not answer just now answers later.
    if (found._tag === "Failure")
      return yield* Effect.as(Effect.sleep("1 second"), [[], { at, pause }] as const)
    const { pieces, ended } = found.success
    const entries = pieces.map((piece) => entryOf(decoders, piece))
    const events = entries
      .filter(isWanted)
      .map((entry) => `id: ${entry.id}\nevent: entry\ndata: ${JSON.stringify(entry)}\n\n`)
    if (ended) {
      const last = yield* Effect.result(subject)
      return [
        last._tag === "Success"
          ? [...events, `event: end\ndata: ${JSON.stringify(last.success)}\n\n`]
          : events,
        undefined
      ]
    }
    const nextPause = pieces.length > 0 ? pauseMs[0] : Math.min(pauseMs[1], pause * 1.25)
    if (pieces.length < most) yield* Effect.sleep(nextPause)
    return [events, { at: entries.at(-1)?.id.split("-")[1] ?? at, pause: nextPause }]
  })
  const first: Position = { at: from, pause: pauseMs[0] }
  const entries = Stream.paginate(first, (position) =>
    Effect.map(next(position), ([events, after]) => [events, Option.fromUndefinedOr(after)] as const)
  )
  const beats = Stream.fromSchedule(Schedule.spaced(heartbeat)).pipe(
    Stream.mapEffect(() => holds),
    Stream.takeWhile((held) => held),
    Stream.map(() => ": still here\n\n")
  )
  return HttpServerResponse.stream(
    Stream.concat(
      Stream.make("retry: 1000\n\n"),
      Stream.merge(entries, beats, { haltStrategy: "either" })
    ).pipe(counted, Stream.encodeText),
    {
      contentType: "text/event-stream",
      headers: { "cache-control": "no-store", "x-accel-buffering": "no" }
    }
  )
}
