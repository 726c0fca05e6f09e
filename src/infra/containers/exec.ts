/** Running a program in a container that runs (Docker Engine API, "Exec"). */
import { randomUUID } from "node:crypto"
import type { Duplex } from "node:stream"
import type Docker from "dockerode"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { attached as attach } from "./attached.ts"
import { endProgram } from "./end-program.ts"
import { ContainerError, containerError } from "./error.ts"
import { frames, type LogPiece } from "./logs.ts"
import { marks } from "./own-processes.ts"

export interface Program {
  readonly command: ReadonlyArray<string>
  /** Besides those of the container. */
  readonly env: Readonly<Record<string, string>>
  /** Left out: as whom the container's own command runs, and where that began. */
  readonly user?: string
  readonly workdir?: string
  /** What it reads; left out: nothing. */
  readonly stdin?: Uint8Array
  /**
   * It is ended with whoever runs it, and all that it has started is ended with it. Left out: that goes on in the container.
   * `endsBy`, in milliseconds since 1970, is when others may end it, where whoever runs it was killed.
   */
  readonly attended?: { readonly endsBy: number }
}

export const execute = <E>(
  engine: Effect.Effect<Docker, ContainerError>,
  name: string,
  { command, env, user, workdir, stdin, attended }: Program,
  print: (pieces: ReadonlyArray<LogPiece>) => Effect.Effect<void, E>
): Effect.Effect<number, ContainerError | E> => {
  const failed = containerError("Running a program in the container")
  const bounded = Effect.timeoutOrElse({
    duration: "20 seconds",
    orElse: () => Effect.fail(failed("no answer"))
  })
  return Effect.gen(function* () {
    const docker = yield* engine
    const mark = [marks.id, randomUUID()] as const
    const variables = [
      ...Object.entries(env),
      ...(attended === undefined ? [] : [mark, [marks.endsBy, String(attended.endsBy)] as const])
    ]
    const exec = yield* Effect.tryPromise({
      try: () =>
        docker.getContainer(name).exec({
          Cmd: [...command],
          Env: variables.map(([key, value]) => `${key}=${value}`),
          ...(user === undefined ? {} : { User: user }),
          ...(workdir === undefined ? {} : { WorkingDir: workdir }),
          AttachStdin: stdin !== undefined,
          AttachStdout: true,
          AttachStderr: true,
          Tty: false
        }),
      catch: failed
    }).pipe(bounded)
    let over = false
    // Before it is started: whoever is interrupted meanwhile leaves nothing behind either.
    if (attended !== undefined)
      yield* Effect.addFinalizer(() => Effect.suspend(() => endProgram(exec, mark.join("="), over)))
    const output = yield* Effect.acquireRelease(
      Effect.tryPromise({
        try: (): Promise<Duplex> => exec.start({ hijack: true, stdin: stdin !== undefined }),
        catch: failed
      }).pipe(bounded),
      (stream) => Effect.sync(() => void stream.destroy())
    )
    yield* Stream.fromAsyncIterable(frames(attach(output, stdin), false), failed).pipe(
      Stream.groupedWithin(256, "200 millis"),
      Stream.mapEffect(print),
      Stream.runDrain
    )
    // Its output also ends when the engine does; it has ended once it has an exit code.
    for (let look = 0; look < 25; look++) {
      const { ExitCode, Running } = yield* Effect.tryPromise({
        try: () => exec.inspect(),
        catch: failed
      }).pipe(bounded)
      if (!Running && ExitCode !== null) {
        over = true
        return ExitCode
      }
      yield* Effect.sleep("200 millis")
    }
    return yield* new ContainerError({
      reason: "Unreachable",
      message: "Running a program in the container: what it came to is not known"
    })
  }).pipe(Effect.scoped)
}
