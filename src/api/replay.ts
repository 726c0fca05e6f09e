/**
 * `Idempotency-Key`: a request takes effect once, and its answer is stored and given again, byte for byte.
 *
 * A request with a key is carried through even when its caller hangs up: whoever lost the answer on the way asks
 * again with the same key, and must find it. A try that failed, or whose process died, may have taken effect: the next
 * try runs with the same reservation, finds what was made and answers it. A refused request changed nothing and leaves
 * its key free, so that the corrected request may come with it; and so does one that failed before its work could begin.
 */
import { createHash } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import { type Answer, Idempotency } from "#src/store/Idempotency.ts"
import { newReservation, type Reservation } from "#src/store/Reservation.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Scope } from "./definition/scope.ts"
import { invalid, type Problem, problem } from "./problem.ts"

export class Replay extends Context.Service<
  Replay,
  <E, R>(
    scope: Pick<Scope, "caller" | "orgId" | "operation">,
    request: HttpServerRequest.HttpServerRequest,
    handled: (reservation: Reservation) => Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
  ) => Effect.Effect<HttpServerResponse.HttpServerResponse, E | Problem | StoreUnavailable, R>
>()("svc/api/Replay") {
  static readonly layer = Layer.effect(
    Replay,
    Effect.gen(function* () {
      const store = yield* Idempotency
      const background = yield* Effect.scope
      return Effect.fnUntraced(function* (scope, request, handled) {
        const key = request.headers["idempotency-key"]
        if (key === undefined) return yield* handled(newReservation(false))
        if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
          return yield* invalid([
            { pointer: "/headers/idempotency-key", message: "must have 1 to 255 visible ASCII characters" }
          ])
        }
        // An unreadable or oversized body is the framework's to refuse; nothing is kept of such a request.
        const body = yield* Effect.option(request.text)
        if (body._tag === "None") return yield* handled(newReservation(false))
        const ref = {
          // Operations that address no organization keep their answers under none.
          orgId: scope.orgId === "" ? "00000000-0000-0000-0000-000000000000" : scope.orgId,
          credential: `${scope.caller.credential}:${scope.caller.credentialId}`,
          key
        }
        const digest = createHash("sha256")
          .update(JSON.stringify([request.method, request.url, body.value]))
          .digest()
        const settle = (response: HttpServerResponse.HttpServerResponse) => {
          const answer = response.status < 400 ? toAnswer(response) : undefined
          if (answer !== undefined) return store.finish(ref, answer)
          const changedNothing =
            response.status >= 400 && (response.status < 500 || scope.operation.worksWhileAnswering)
          return changedNothing ? store.refuse(ref) : store.fail(ref)
        }
        const carriedOut = (reservation: Reservation) =>
          handled(reservation).pipe(
            // What cannot be noted looks like a try whose process died, and is taken over like one.
            Effect.tap((response) =>
              Effect.catch(settle(response), (error) =>
                Effect.logWarning("the end of a request could not be noted for its idempotency key", error)
              )
            ),
            Effect.onExit((exit) => (Exit.isFailure(exit) ? Effect.ignore(store.fail(ref)) : Effect.void))
          )
        // Taking the key and setting out are one step: a caller who hangs up in between would leave it taken.
        const begun = yield* Effect.uninterruptible(
          Effect.gen(function* () {
            const found = yield* store.begin(ref, digest)
            if (found._tag !== "Try") return found
            return {
              _tag: found._tag,
              fiber: yield* Effect.forkIn(carriedOut(found.reservation), background)
            }
          })
        )
        switch (begun._tag) {
          case "Replay":
            return HttpServerResponse.uint8Array(Buffer.from(begun.answer.body, "base64"), {
              status: begun.answer.status,
              headers: { ...begun.answer.headers, "idempotency-replayed": "true" }
            })
          case "InFlight":
            return yield* problem(
              409,
              "idempotency_key_in_flight",
              "The first request with this key has not been answered yet; repeat it in a moment",
              { headers: { "retry-after": "1" } }
            )
          case "OtherRequest":
            return yield* problem(
              409,
              "idempotency_key_reused",
              "This key came with another request before; use a new one"
            )
          case "Try":
            return yield* Fiber.join(begun.fiber)
        }
      })
    })
  )
}

/** Undefined: the body is a stream, which is not kept. */
const toAnswer = (response: HttpServerResponse.HttpServerResponse): Answer | undefined => {
  const { body } = response
  if (body._tag !== "Uint8Array" && body._tag !== "Empty") return undefined
  const headers: Record<string, string> = { ...response.headers }
  if (body._tag === "Uint8Array") headers["content-type"] = body.contentType
  return {
    status: response.status,
    headers,
    body: body._tag === "Uint8Array" ? Buffer.from(body.body).toString("base64") : ""
  }
}
