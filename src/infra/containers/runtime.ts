/**
 * Whether a container is held by the runtime that was asked for. Docker does as it is told; Podman's service leaves the
 * name of a runtime out without a word and takes its default one, so it has to be looked at before anything runs.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Call } from "./calls.ts"
import { ContainerError } from "./error.ts"

/** Podman's own form says it; Docker has no such path. */
const InPodman = Schema.Struct({ OCIRuntime: Schema.String })
const InDocker = Schema.Struct({ HostConfig: Schema.Struct({ Runtime: Schema.String }) })

export const ensureRuntime = Effect.fnUntraced(function* (call: Call, name: string, runtime: string) {
  const read = (path: string) =>
    call(
      "Looking at the container's runtime",
      (docker) =>
        new Promise<unknown>((resolve, reject) =>
          docker.modem.dial(
            { path, method: "GET", statusCodes: { 200: true, 404: "not found", 500: "server error" } },
            (error: unknown, answer: unknown) => (error ? reject(error) : resolve(answer))
          )
        )
    )
  const podman = yield* Effect.result(read(`/v4.0.0/libpod/containers/${name}/json`))
  const decoded =
    podman._tag === "Success"
      ? Schema.decodeUnknownOption(InPodman)(podman.success)
      : podman.failure.reason === "NotFound"
        ? Schema.decodeUnknownOption(InDocker)(yield* read(`/containers/${name}/json`))
        : yield* podman.failure
  const found =
    decoded._tag === "None"
      ? "one that it does not tell"
      : "OCIRuntime" in decoded.value
        ? decoded.value.OCIRuntime
        : decoded.value.HostConfig.Runtime
  if (found === runtime) return
  return yield* new ContainerError({
    reason: "Failed",
    message: `The container engine would run it in the runtime ${found} instead of ${runtime} (SVC_SANDBOX_RUNTIME, SVC_APP_RUNTIME). Podman runs all containers in its default one: make it that, as runtime in [engine] of containers.conf`
  })
})
