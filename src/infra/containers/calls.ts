/** Calls of the engine's API: to the engine there is at that moment, bounded in time, with errors that have a reason. */
import * as fs from "node:fs"
import type Docker from "dockerode"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { Host } from "../host/Host.ts"
import { ContainerError, containerError } from "./error.ts"
import { type EnginePlace, findEngine, missing } from "./service.ts"

export type Act<A = void> = Effect.Effect<A, ContainerError>

/** One call, bounded in time. */
export type Call = <A>(
  what: string,
  body: (docker: Docker, signal: AbortSignal) => Promise<A>,
  duration?: Duration.Input
) => Act<A>

export const makeCalls = (host: Host["Service"], containerSocket: string | undefined) => {
  const clients = new Map<string, Docker>()
  /** The library is loaded with the first call that can succeed: it is a tenth of a start, and few hosts need it at once. */
  const clientOf = async ({ socket }: EnginePlace) => {
    if (!fs.existsSync(socket)) throw new Error(`there is no socket ${socket}`)
    const { default: Docker } = await import("dockerode")
    const client = clients.get(socket) ?? new Docker({ socketPath: socket })
    clients.set(socket, client)
    return client
  }
  const place: Act<EnginePlace> = Effect.flatMap(findEngine(host, containerSocket), (found) =>
    Option.isSome(found) ? Effect.succeed(found.value) : Effect.fail(missing)
  )
  const call: Call = (what, body, duration = "20 seconds") =>
    Effect.flatMap(place, (place) =>
      Effect.tryPromise({
        try: async (signal) => body(await clientOf(place), signal),
        catch: containerError(what)
      }).pipe(
        Effect.timeoutOrElse({
          duration,
          orElse: () =>
            new ContainerError({
              reason: "Unreachable",
              message: `${what}: the container engine did not answer in ${Duration.toSeconds(duration)} s`
            })
        })
      )
    )
  const client: Act<Docker> = Effect.flatMap(place, (found) =>
    Effect.tryPromise({
      try: () => clientOf(found),
      catch: containerError("Reaching the container engine")
    })
  )
  return { place, call, client }
}

export const ignoring =
  (...reasons: ReadonlyArray<ContainerError["reason"]>) =>
  <A>(self: Act<A>): Act =>
    Effect.catchIf(
      Effect.asVoid(self),
      (error) => reasons.includes(error.reason),
      () => Effect.void
    )

/** For `Effect.retry`: while the engine says this of what it is about to have cleaned up, ten seconds at most. */
export const whileItSays = (text: string) => ({
  while: ({ message }: ContainerError) => message.includes(text),
  schedule: Schedule.spaced("250 millis"),
  times: 40
})
