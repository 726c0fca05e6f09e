/**
 * `POST /v1/git/webhooks/{connectionId}`: where forges tell of pushes and pull requests. The proof is of the body as it came;
 * each delivery is kept once and answered, and what it is about is looked at afterwards.
 */
import * as ByteSize from "effect/ByteSize"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { looksLikeUid } from "#schemas/names.ts"
import { tooLarge } from "#src/api/failure.ts"
import { fromStore, internalResponse, notFound, problem, toResponse } from "#src/api/problem.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { PullRequestLooks } from "#src/previews/PullRequestLooks.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { eventOf, isProven } from "./forge-events.ts"
import { GitBranches } from "./GitBranches.ts"
import { GitConnections } from "./GitConnections.ts"

/** Of a push of thousands of commits it may be more; what it tells of is then found by looking. */
const longestBody = ByteSize.bytes(2 * 1024 * 1024)
const path = "/v1/git/webhooks/:connectionId"

const unknown = notFound("connection")
const unproven = problem(401, "invalid_signature", "The signature or the token does not hold for this body")

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const connections = yield* GitConnections
    const branches = yield* GitBranches
    const sources = yield* GitSources
    const pulls = yield* PullRequestLooks

    const receive = Effect.gen(function* () {
      const request = yield* HttpServerRequest.HttpServerRequest
      const { connectionId = "" } = yield* HttpRouter.params
      if (!looksLikeUid(connectionId)) return yield* unknown
      const connection = Option.getOrUndefined(yield* connections.openAny(connectionId))
      if (connection === undefined) return yield* unknown
      const body = Buffer.from(
        yield* Effect.mapError(request.arrayBuffer, ({ reason }) =>
          reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge" ? tooLarge : unproven
        )
      )
      const { kind, secrets, orgId, id } = connection
      if (!isProven(kind, secrets.webhookSecret, request.headers, body)) return yield* unproven
      const event = eventOf(kind, request.headers, body.toString())
      const told = yield* branches.tell(orgId, id, event)
      if (told === "gone") return yield* unknown
      // Of what is known already too: it has others look once more, and they may not have heard of it the first time.
      if (event.repo !== null && event.repo.split("/")[0] === connection.owner) {
        if (event.event === "push") yield* sources.changed(orgId, event.repo)
        if (event.event === "pull_request")
          yield* pulls.told(
            orgId,
            event.repo,
            // Once: somebody may have closed its preview since.
            event.reopened && told === "new" ? (event.pullRequest ?? undefined) : undefined
          )
      }
      return HttpServerResponse.jsonUnsafe({ received: true }, { headers: { "cache-control": "no-store" } })
    }).pipe(
      Effect.provideService(HttpIncomingMessage.MaxBodySize, longestBody),
      Effect.catchTag("Problem", toResponse),
      Effect.catchTag("StoreUnavailable", (error: StoreUnavailable) => toResponse(fromStore(error))),
      Effect.catchDefect((defect) =>
        Effect.andThen(Effect.logError("a webhook of a forge failed unexpectedly", defect), internalResponse)
      )
    )
    return HttpRouter.add("POST", path, receive)
  })
)
