/**
 * Keeping what containers print while they print it: a follower for each, in the background of the process whose
 * reconcile asked for it first. One that stops is followed by another, in this process or the next, which goes on with
 * the byte after the last one kept.
 */
import { randomUUID } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { inBackground } from "#src/engine/in-background.ts"
import { ContainerEngine, type LogPiece } from "#src/infra/containers/ContainerEngine.ts"
import { type Following, type LogRef, type LogStore, type NewPiece, pieceWeight } from "./log-store.ts"

/** Bytes of one piece; a longer line is kept in several. */
const longestPiece = 64 * 1024
/** Pieces that one statement adds. */
const most = 256

export interface FollowersService {
  readonly follows: (uid: string) => boolean
  /** Follows the container until it has ended and everything it printed is kept. */
  readonly start: (ref: LogRef, container: string) => Effect.Effect<void>
  readonly stop: (uid: string) => Effect.Effect<void>
}

export interface FollowerOptions {
  /** How long who follows a container may be silent until somebody else does. */
  readonly followerMs: number
  /** Bytes that are kept of what one container prints; undefined: it has no end, and the store keeps the last ones. */
  readonly logBytes: number | undefined
  /** Once everything it printed is kept. */
  readonly ended?: (ref: LogRef) => Effect.Effect<void>
}

export const makeFollowers = Effect.fnUntraced(function* (logs: LogStore, options: FollowerOptions) {
  const engine = yield* ContainerEngine
  const fibers = yield* FiberMap.make<string>()
  const owner = randomUUID()
  const { followerMs, logBytes = Number.POSITIVE_INFINITY, ended = () => Effect.void } = options

  const runs = (container: string) =>
    Effect.map(engine.inspect(container), (found) => Option.isSome(found) && found.value.state === "running")

  /** Adds what comes after what is kept. Answers what there is to do: nothing more, or go on from the start. */
  const read = Effect.fnUntraced(function* (ref: LogRef, container: string, from: Following, over: boolean) {
    let { weight } = from
    // What has no end is not read from its start again, which the engine may have dropped; times rise in its log.
    const resume = logBytes === Number.POSITIVE_INFINITY ? from.last : null
    let position = resume === null ? 0 : from.position - resume.bytes
    const pieces = engine.logs(container, !over, resume?.at)
    const coming = resume === null ? pieces : Stream.filter(pieces, ({ at }) => at >= resume.at)
    const whole = yield* coming.pipe(
      Stream.mapEffect((piece) =>
        Effect.sync(() => {
          const pieces = cut(piece, position, from.position)
          position += piece.content.length
          return pieces
        })
      ),
      Stream.flattenIterable,
      Stream.groupedWithin(most, "200 millis"),
      Stream.mapEffect(
        Effect.fnUntraced(function* (pieces) {
          // What came until here came while it ran, or it is read once more, when it has ended.
          if (!over && !(yield* runs(container))) return "again"
          const { taken, full } = within(pieces, logBytes - weight)
          weight += taken.reduce((sum, { content }) => sum + content.length + pieceWeight, 0)
          if (full) taken.push(yield* marker(taken, pieces))
          return (yield* logs.append(ref, owner, taken, full)) && !full ? "more" : "done"
        })
      ),
      Stream.takeUntil((next) => next !== "more"),
      Stream.runLast
    )
    return Option.getOrElse(whole, () => "more") !== "done"
  })

  const marker = (taken: ReadonlyArray<NewPiece>, pieces: ReadonlyArray<NewPiece>) =>
    Effect.map(Clock.currentTimeMillis, (now): NewPiece => {
      const last = taken.at(-1)
      return {
        position: last === undefined ? (pieces[0]?.position ?? 0) : last.position + last.content.length,
        stream: "system",
        at: new Date(now),
        content: Buffer.from("[The log is full. What was printed after this is not kept.]\n")
      }
    })

  const follow = Effect.fnUntraced(function* (ref: LogRef, container: string) {
    for (;;) {
      const from = yield* logs.follow(ref, owner, followerMs)
      if (from === undefined) return
      const began = yield* Clock.currentTimeMillis
      const before = yield* engine.inspect(container)
      // It may have been removed by hand: what is kept is all there is.
      if (Option.isNone(before)) return void (yield* logs.append(ref, owner, [], true))
      const beats = logs.beat(ref, owner).pipe(
        Effect.repeat({
          schedule: Schedule.spaced(followerMs / 4),
          while: (still) => still
        }),
        Effect.as(false)
      )
      const goOn =
        before.value.state === "created"
          ? true
          : yield* Effect.raceFirst(read(ref, container, from, before.value.state === "exited"), beats)
      if (!goOn) return
      // A reading that began after the end has seen all of it.
      if (before.value.state === "exited") return void (yield* logs.append(ref, owner, [], true))
      // It has ended meanwhile: the reading that is the last begins at once.
      const after = yield* engine.inspect(container)
      if (Option.isNone(after) || after.value.state === "exited") continue
      // Every reading begins at the start: the more there is, the longer the pause.
      const took = (yield* Clock.currentTimeMillis) - began
      yield* Effect.sleep(Math.max(250, Math.min(10_000, took * 10)))
    }
  })

  const service: FollowersService = {
    follows: (uid) => FiberMap.hasUnsafe(fibers, uid),
    start: (ref, container) =>
      Effect.asVoid(
        FiberMap.run(
          fibers,
          ref.uid,
          follow(ref, container).pipe(
            Effect.andThen(ended(ref)),
            Effect.catchCause((cause) =>
              Effect.logDebug("what a container prints could not be read; somebody goes on", cause)
            ),
            // Whoever is next need not wait until this one counts as dead.
            Effect.ensuring(Effect.ignore(Effect.timeout(logs.release(ref, owner), "5 seconds"))),
            inBackground
          ),
          { onlyIfMissing: true }
        )
      ),
    stop: (uid) => FiberMap.remove(fibers, uid)
  }
  return service
})

/** What of a piece comes after what is kept, in parts that a row may hold. */
const cut = (piece: LogPiece, position: number, kept: number): ReadonlyArray<NewPiece> => {
  const parts: Array<NewPiece> = []
  const { content, stream, at } = piece
  for (let offset = Math.max(0, kept - position); offset < content.length; offset += longestPiece) {
    parts.push({
      position: position + offset,
      stream,
      at,
      content: content.subarray(offset, offset + longestPiece)
    })
  }
  return parts
}

/** As much as there is room for. */
const within = (pieces: ReadonlyArray<NewPiece>, room: number) => {
  const taken: Array<NewPiece> = []
  let left = room
  for (const piece of pieces) {
    const fits = Math.min(piece.content.length, left - pieceWeight)
    if (fits > 0) taken.push({ ...piece, content: piece.content.subarray(0, fits) })
    if (fits < piece.content.length) return { taken, full: true }
    left -= fits + pieceWeight
  }
  return { taken, full: false }
}
