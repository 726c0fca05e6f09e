/** Keeping what a container prints until it has ended, in order and without gaps. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import {
  type Container,
  type ContainerEngine,
  ContainerError,
  type LogPiece
} from "#src/infra/containers/ContainerEngine.ts"
import type { BuildFailed, BuildLost } from "./build-error.ts"

export interface BuildPrinter {
  readonly print: (pieces: ReadonlyArray<LogPiece>) => Effect.Effect<void, BuildLost>
  /** What the platform has to say. */
  readonly say: (line: string) => Effect.Effect<void, BuildLost>
}

/** An engine that does not answer is waited for: the container goes on by itself. */
const patience = { times: 60, schedule: Schedule.spaced("1 second").pipe(Schedule.jittered) }

/**
 * Answers how it ended. What comes from the moment of its end on may have gaps as an engine follows it, so that is read
 * once more, from the byte after the last one kept. `logBytes`: what comes after so many is read and not kept. `note` is
 * told how many bytes came, and may end it.
 */
export const keepPrinted = Effect.fnUntraced(function* (
  engine: ContainerEngine["Service"],
  name: string,
  { print, say }: BuildPrinter,
  note: (bytes: number) => Effect.Effect<void, BuildFailed>,
  logBytes: number
) {
  let kept = 0
  const look: Effect.Effect<Container, ContainerError> = engine.inspect(name).pipe(
    Effect.retry({ ...patience, while: ({ reason }) => reason === "Unreachable" }),
    Effect.flatMap((found) =>
      Option.isSome(found)
        ? Effect.succeed(found.value)
        : new ContainerError({ reason: "NotFound", message: `The container ${name} was removed` })
    )
  )

  const take = Effect.fnUntraced(function* (pieces: ReadonlyArray<LogPiece>) {
    const room = logBytes - kept
    let left = room
    const fitting = pieces.flatMap((piece) => {
      const content = piece.content.subarray(0, Math.max(0, left))
      left -= piece.content.length
      return content.length === 0 ? [] : [{ ...piece, content }]
    })
    const bytes = pieces.reduce((sum, { content }) => sum + content.length, 0)
    kept += bytes
    yield* note(bytes)
    if (fitting.length > 0) yield* print(fitting)
    if (room > 0 && left <= 0) yield* say("The log is full. What is printed after this is not kept.")
  })

  const read = (over: boolean) => {
    const from = kept
    let position = 0
    return engine.logs(name, !over).pipe(
      Stream.map((piece) => {
        const known = Math.max(0, from - position)
        position += piece.content.length
        return { ...piece, content: piece.content.subarray(known) }
      }),
      Stream.filter(({ content }) => content.length > 0),
      Stream.groupedWithin(256, "200 millis"),
      Stream.mapEffect(
        Effect.fnUntraced(function* (pieces) {
          if (!over && (yield* look).state !== "running") return false
          yield* take(pieces)
          return true
        })
      ),
      Stream.takeWhile((goesOn) => goesOn),
      Stream.runDrain
    )
  }

  for (;;) {
    const before = yield* look
    const over = before.state === "exited"
    const done = yield* Effect.result(read(over))
    if (done._tag === "Failure" && done.failure._tag !== "ContainerError") return yield* done.failure
    if (over && done._tag === "Success") return before
    const { state } = yield* look
    if (state === "running" || done._tag === "Failure") yield* Effect.sleep("500 millis")
  }
})
