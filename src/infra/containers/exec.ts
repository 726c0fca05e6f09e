/** Running a program in a container that runs (Docker Engine API, "Exec"). */
import type { Readable } from "node:stream"
import type Docker from "dockerode"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { type ContainerError, containerError } from "./error.ts"
import { frames, type LogPiece } from "./logs.ts"

export interface Program {
  readonly command: ReadonlyArray<string>
  /** Besides those of the container. */
  readonly env: Readonly<Record<string, string>>
  readonly user: string
  readonly workdir: string
}

/** It goes on in the container if this is interrupted. */
export const execute = <E>(
  engine: Effect.Effect<Docker, ContainerError>,
  name: string,
  { command, env, user, workdir }: Program,
  print: (pieces: ReadonlyArray<LogPiece>) => Effect.Effect<void, E>
): Effect.Effect<number, ContainerError | E> => {
  const failed = containerError("Running a program in the container")
  const bounded = Effect.timeoutOrElse({
    duration: "20 seconds",
    orElse: () => Effect.fail(failed("no answer"))
  })
  return Effect.gen(function* () {
    const docker = yield* engine
    const exec = yield* Effect.tryPromise({
      try: () =>
        docker.getContainer(name).exec({
          Cmd: [...command],
          Env: Object.entries(env).map(([key, value]) => `${key}=${value}`),
          User: user,
          WorkingDir: workdir,
          AttachStdin: false,
          AttachStdout: true,
          AttachStderr: true,
          Tty: false
        }),
      catch: failed
    }).pipe(bounded)
    const output = yield* Effect.acquireRelease(
      Effect.tryPromise({
        try: (): Promise<Readable> => exec.start({ hijack: true, stdin: false }),
        catch: failed
      }).pipe(bounded),
      (stream) => Effect.sync(() => void stream.destroy())
    )
    yield* Stream.fromAsyncIterable(frames(output, false), failed).pipe(
      Stream.groupedWithin(256, "200 millis"),
      Stream.mapEffect(print),
      Stream.runDrain
    )
    const { ExitCode } = yield* Effect.tryPromise({ try: () => exec.inspect(), catch: failed }).pipe(bounded)
    return ExitCode ?? -1
  }).pipe(Effect.scoped)
}
