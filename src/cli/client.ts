/** The typed client, made from the same definition as the server, with the credential that an operation takes. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import { isHttpClientError } from "effect/http/HttpClientError"
import * as HttpApiClient from "effect/http-api/HttpApiClient"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Struct from "effect/Struct"
import { Api } from "#src/api/definition/api.ts"
import { ProblemBody } from "#src/api/definition/problem.ts"
import { authorized, type Credential } from "./bearer.ts"
import { CliFailure, exitCodes, failure, fromProblem } from "./failure.ts"
import { type Login, memberCredential, ownerCredential } from "./login.ts"
import { resending } from "./resend.ts"

export type ApiClient = HttpApiClient.ForApi<typeof Api>

/** Each group is made when it is first used: a command calls one or two of them, and all take a fifth of a second. */
const clientOf = (httpClient: HttpClient.HttpClient, baseUrl: string): ApiClient => {
  const client = {}
  for (const group of Struct.keys(Api.groups)) {
    let made: object | undefined
    Object.defineProperty(client, group, {
      get: () => (made ??= Effect.runSync(HttpApiClient.group(Api, { group, httpClient, baseUrl })))
    })
  }
  return client as ApiClient
}

const make = Effect.fnUntraced(function* (login: Login, credential: Credential | undefined) {
  const send = yield* authorized(resending(fetch), credential)
  const httpClient = yield* HttpClient.HttpClient.pipe(
    Effect.provide(FetchHttpClient.layer),
    Effect.provideService(FetchHttpClient.Fetch, send)
  )
  return { client: clientOf(httpClient, login.apiUrl), send, sendOnce: yield* authorized(fetch, credential) }
})

export class Client extends Context.Service<
  Client,
  {
    readonly login: Login
    readonly org: string
    /** Calls with what acts in the organization. */
    readonly asMember: ApiClient
    /** Calls with what is a person's own, if there is that. */
    readonly asOwner: ApiClient
    /** Sends what has no typed call, with what acts in the organization. */
    readonly send: typeof fetch
    /** The same for what must not be sent again, and whose answer is read as it comes. */
    readonly sendOnce: typeof fetch
  }
>()("svc/cli/Client") {
  static readonly layer = (login: Login) =>
    Layer.effect(
      Client,
      Effect.gen(function* () {
        const member = yield* make(login, memberCredential(login))
        const owner = yield* make(login, ownerCredential(login))
        return {
          login,
          org: login.organization,
          asMember: member.client,
          asOwner: owner.client,
          send: member.send,
          sendOnce: member.sendOnce
        }
      })
    )
}

const isProblem = Schema.is(ProblemBody)

/** What ended a request before it was sent, such as a sign-in that is over, is found within the client's error. */
const failureIn = (error: unknown): CliFailure | undefined => {
  if (error instanceof CliFailure || !(error instanceof Error))
    return error instanceof CliFailure ? error : undefined
  return failureIn(isHttpClientError(error) ? error.reason.cause : error.cause)
}

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
        const said = failureIn(error)
        if (said !== undefined) return said
        // What is sent is checked before it is.
        if (Schema.isSchemaError(error)) return failure(`Not valid: ${error.message}`, exitCodes.usage)
        const why = error instanceof Error ? error.message : String(error)
        return failure(
          `${login.apiUrl} cannot be reached or understood: ${why}. Is the control plane running (svc up)?`
        )
      })
    )
  )

/** A call whose body is sent as it is read. Its time is bounded by the control plane's for a whole request. */
export const send = Effect.fnUntraced(function* (method: string, path: string, body: Blob) {
  const { login, send } = yield* Client
  return yield* call(
    Effect.tryPromise({
      try: async (signal) => {
        const response = await send(`${login.apiUrl}${path}`, { method, body, signal })
        const answer: unknown = await response.json()
        return { answer, ok: response.ok }
      },
      catch: (cause) => cause
    }).pipe(Effect.flatMap(({ answer, ok }) => (ok ? Effect.succeed(answer) : Effect.fail(answer))))
  )
})
