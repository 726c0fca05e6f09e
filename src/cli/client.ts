/** The typed client, made from the same definition as the server, with the credential that an operation takes. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as HttpApiClient from "effect/http-api/HttpApiClient"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Api } from "#src/api/definition/api.ts"
import { ProblemBody } from "#src/api/definition/problem.ts"
import { type CliFailure, exitCodes, failure, fromProblem } from "./failure.ts"
import type { Login } from "./login.ts"
import { resending } from "./resend.ts"

const make = (login: Login, credential: Redacted.Redacted | undefined) =>
  HttpApiClient.make(Api, {
    baseUrl: login.apiUrl,
    transformClient: HttpClient.mapRequest((request) =>
      credential === undefined ? request : HttpClientRequest.bearerToken(request, credential)
    )
  })

export type ApiClient = Effect.Success<ReturnType<typeof make>>

export class Client extends Context.Service<
  Client,
  {
    readonly login: Login
    readonly org: string
    /** Calls with the API key of the organization, or with the session if there is no such key. */
    readonly asMember: ApiClient
    /** Calls with the session, or with the key if there is no session. */
    readonly asOwner: ApiClient
  }
>()("svc/cli/Client") {
  static readonly layer = (login: Login) =>
    Layer.effect(
      Client,
      Effect.gen(function* () {
        return {
          login,
          org: login.organization,
          asMember: yield* make(login, login.apiKey ?? login.session),
          asOwner: yield* make(login, login.session ?? login.apiKey)
        }
      })
    ).pipe(
      Layer.provide(FetchHttpClient.layer),
      Layer.provide(Layer.succeed(FetchHttpClient.Fetch, resending(fetch)))
    )
}

const isProblem = Schema.is(ProblemBody)

/** Whatever a call fails with, as the end of a command. Nothing waits for ever: a call has two minutes. */
export const call = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, CliFailure, R | Client> =>
  Effect.flatMap(Client, ({ login }) =>
    self.pipe(
      Effect.timeoutOrElse({
        duration: "2 minutes",
        orElse: () =>
          Effect.fail(failure(`${login.apiUrl} did not answer within two minutes`, exitCodes.timeout))
      }),
      Effect.mapError((error: unknown): CliFailure => {
        if (isProblem(error)) return fromProblem(error)
        if (error instanceof Error && "_tag" in error && error._tag === "CliFailure")
          return error as CliFailure
        // What is sent is checked before it is.
        if (Schema.isSchemaError(error)) return failure(`Not valid: ${error.message}`, exitCodes.usage)
        const said = error instanceof Error ? error.message : String(error)
        return failure(
          `${login.apiUrl} cannot be reached or understood: ${said}. Is the control plane running (svc up)?`
        )
      })
    )
  )
