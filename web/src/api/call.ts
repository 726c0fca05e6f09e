/** Calls of operations as promises that fail with what people can read. */
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClientError from "effect/http/HttpClientError"
import type * as HttpApi from "effect/http-api/HttpApi"
import * as HttpApiClient from "effect/http-api/HttpApiClient"
import type * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import * as Schema from "effect/Schema"
import { ProblemBody } from "#src/api/definition/problem.ts"
import { Failure, failureOf } from "./failure.ts"
import { apiUrl } from "./place.ts"

/** The typed client of these groups. The session's cookie goes with each request by itself. */
export const clientOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
) => HttpApiClient.make(api, { baseUrl: apiUrl }).pipe(Effect.provide(FetchHttpClient.layer))

const isProblem = Schema.is(ProblemBody)
/** Nothing spins for ever. */
const patience = "60 seconds"

/** Rejects with a {@link Failure} and nothing else, unless `signal` ended it. */
export const call = <A>(operation: Effect.Effect<A, unknown>, signal?: AbortSignal): Promise<A> =>
  Effect.runPromise(
    operation.pipe(
      Effect.timeoutOrElse({
        duration: patience,
        orElse: () => Effect.fail(failureOf({ status: 0, detail: "It did not answer within a minute." }))
      }),
      Effect.mapError((error) => {
        if (error instanceof Failure) return error
        if (isProblem(error)) return failureOf(error)
        if (Schema.isSchemaError(error)) return failureOf({ status: 422, detail: error.message })
        // Whoever stands between answers in its own way.
        const answered = HttpClientError.isHttpClientError(error) ? error.response : undefined
        return failureOf({ status: answered?.status ?? 0, detail: "" })
      })
    ),
    signal === undefined ? {} : { signal }
  )

/** A key that makes repeating a request harmless. */
export const idempotent = () => ({ "idempotency-key": crypto.randomUUID() })
