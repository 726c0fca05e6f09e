/**
 * What a container prints, piece by piece, as the engine tells it: frames of eight bytes and a text that begins with a
 * time (Docker Engine API, "Attach to a container", stream format). Every reading begins at the start, so that who
 * knows how many bytes it has can go on exactly there.
 */
import type { Readable } from "node:stream"
import type Docker from "dockerode"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { type ContainerError, containerError } from "./error.ts"

export interface LogPiece {
  readonly stream: "stdout" | "stderr"
  readonly at: Date
  readonly content: Buffer
}

const stamp = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) /

const pieceOf = (kind: number, text: Buffer, stamped: boolean): LogPiece => {
  if (!stamped) return { stream: kind === 2 ? "stderr" : "stdout", at: new Date(), content: text }
  const [whole = "", time = ""] = stamp.exec(text.subarray(0, 64).toString("latin1")) ?? []
  const at = new Date(time === "" ? 0 : time)
  return { stream: kind === 2 ? "stderr" : "stdout", at, content: text.subarray(whole.length) }
}

/** `stamped`: each text begins with its time. */
export async function* frames(source: Readable, stamped: boolean): AsyncGenerator<LogPiece> {
  let rest: Buffer = Buffer.alloc(0)
  let parts: Array<Buffer> = []
  let held = 0
  let needed = 8
  for await (const chunk of source) {
    parts.push(chunk)
    held += chunk.length
    // Joined once there is enough: a long frame comes in many chunks.
    if (held < needed) continue
    rest = Buffer.concat(parts)
    let at = 0
    needed = 8
    while (rest.length - at >= 8) {
      const length = rest.readUInt32BE(at + 4)
      needed = 8 + length
      if (rest.length - at < needed) break
      const piece = pieceOf(rest[at] ?? 1, rest.subarray(at + 8, at + needed), stamped)
      if (piece.content.length > 0) yield piece
      at += needed
      needed = 8
    }
    parts = [rest.subarray(at)]
    held = rest.length - at
  }
}

export const logPieces = (
  engine: Effect.Effect<Docker, ContainerError>,
  name: string,
  follow: boolean,
  since?: Date
): Stream.Stream<LogPiece, ContainerError> => {
  const failed = containerError("Reading what the container prints")
  return Stream.unwrap(
    Effect.gen(function* () {
      const docker = yield* engine
      const source = yield* Effect.acquireRelease(
        Effect.tryPromise({
          try: async () => {
            return await new Promise<Readable>((resolve, reject) =>
              docker.modem.dial(
                {
                  path: `/containers/${name}/logs?`,
                  method: "GET",
                  isStream: true,
                  statusCodes: { 200: true, 404: "no such container", 500: "server error" },
                  options: {
                    follow,
                    stdout: true,
                    stderr: true,
                    timestamps: true,
                    ...(since === undefined ? {} : { since: Math.floor(since.getTime() / 1_000) })
                  }
                },
                (error, stream) => (error ? reject(error) : resolve(stream as Readable))
              )
            )
          },
          catch: failed
        }).pipe(
          Effect.timeoutOrElse({ duration: "20 seconds", orElse: () => Effect.fail(failed("no answer")) })
        ),
        (stream) => Effect.sync(() => void stream.destroy())
      )
      return Stream.fromAsyncIterable(frames(source, true), failed)
    })
  )
}
