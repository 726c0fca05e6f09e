/** Following the change feed. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { ResourceChange, type ResourceSummary } from "#src/api/definition/resource-summary.ts"
import { authorized } from "./bearer.ts"
import { Client } from "./client.ts"
import { CliFailure, exitCodes, failure } from "./failure.ts"
import { memberCredential } from "./login.ts"
import { paint } from "./output.ts"
import { visibleLine } from "./visible.ts"

export type Summary = typeof ResourceSummary.Type
export type Change = typeof ResourceChange.Type

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(ResourceChange))

/**
 * Calls `each` with everything there is and then with every change, until it answers true. A connection that ends is
 * opened again where it stopped.
 */
export const follow = Effect.fnUntraced(function* <E>(each: (change: Change) => Effect.Effect<boolean, E>) {
  const { login, org } = yield* Client
  const send = yield* authorized(fetch, memberCredential(login))
  let lastEventId: string | undefined
  for (let failures = 0; ; ) {
    const response = yield* Effect.tryPromise({
      try: (signal) =>
        send(`${login.apiUrl}/v1/orgs/${encodeURIComponent(org)}/resources/watch`, {
          signal,
          headers: {
            accept: "text/event-stream",
            ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId })
          }
        }),
      catch: (cause) => (cause instanceof CliFailure ? cause : undefined)
    }).pipe(
      Effect.asSome,
      Effect.catch((ended) => (ended === undefined ? Effect.succeedNone : Effect.fail(ended)))
    )
    if (response._tag === "None" || !response.value.ok || response.value.body === null) {
      const status = response._tag === "Some" ? response.value.status : 0
      if (status === 401 || status === 403)
        return yield* failure("Not allowed to watch; run svc login", exitCodes.authentication)
      if (++failures > 30)
        return yield* failure(`${login.apiUrl} cannot be reached; is the control plane running (svc up)?`)
      yield* Effect.sleep(Math.min(5_000, 200 * failures))
      continue
    }
    failures = 0
    const reader = response.value.body.pipeThrough(new TextDecoderStream()).getReader()
    const done = yield* Effect.gen(function* () {
      let buffer = ""
      for (;;) {
        const chunk = yield* Effect.option(Effect.tryPromise(() => reader.read()))
        if (chunk._tag === "None" || chunk.value.done) return false
        buffer += chunk.value.value
        for (let end = buffer.indexOf("\n\n"); end !== -1; end = buffer.indexOf("\n\n")) {
          const lines = buffer.slice(0, end).split("\n")
          buffer = buffer.slice(end + 2)
          const data = lines
            .filter((line) => line.startsWith("data: "))
            .map((line) => line.slice(6))
            .join("\n")
          if (data === "") continue
          const change = yield* Effect.mapError(decode(data), () =>
            failure("The server sent a change that this client does not understand")
          )
          lastEventId = lines.find((line) => line.startsWith("id: "))?.slice(4) ?? lastEventId
          if (yield* each(change)) return true
        }
      }
    }).pipe(Effect.ensuring(Effect.promise(() => reader.cancel().catch(() => undefined))))
    if (done) return
  }
})

export const readyCondition = (resource: Summary) => resource.conditions.find(({ type }) => type === "Ready")

/** One line for how a resource is doing. */
export const progressLine = (resource: Summary): string => {
  const ready = readyCondition(resource)
  const mark =
    ready?.status === "true"
      ? paint("green", "ready")
      : resource.phase === "failed"
        ? paint("red", "failed")
        : paint("yellow", resource.phase)
  const why = ready === undefined || ready.status === "true" ? "" : `  ${ready.message}`
  return visibleLine(`${resource.address}  ${mark}${why}`)
}
