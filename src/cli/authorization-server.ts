/**
 * The control plane as an OAuth 2.1 authorization server, seen by a public client (RFC 6749, 7009, 7636, 8414, 9207).
 * `openid-client` speaks the protocol; here its answers become ours.
 */
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as client from "openid-client"
import { visibleLine } from "./visible.ts"

/** Clients that every control plane knows: this program, and its bridge for MCP clients. */
export type ClientId = "svc-cli" | "svc-mcp"

/** The token does not hold any more, and no repetition will change that (RFC 6749, 5.2). */
class InvalidGrant extends Data.TaggedError("InvalidGrant")<{ readonly message: string }> {}

/** Everything else that keeps the server from answering. It says nothing about the token. */
export class AuthorizationServerFailed extends Data.TaggedError("AuthorizationServerFailed")<{
  readonly message: string
  /** Whether the same request may succeed in a moment. */
  readonly temporary: boolean
}> {}

const Answer = Schema.Struct({
  access_token: Schema.NonEmptyString,
  refresh_token: Schema.NonEmptyString,
  /** Seconds. */
  expires_in: Schema.Finite,
  scope: Schema.String,
  /** Not of the RFC: the slug of the organization that the person chose. */
  organization: Schema.NonEmptyString
})
const decodeAnswer = Schema.decodeUnknownEffect(Answer)

export interface TokenSet {
  readonly accessToken: Redacted.Redacted
  readonly refreshToken: Redacted.Redacted
  readonly expiresInMs: number
  readonly scopes: ReadonlyArray<string>
  readonly organization: string
}

/** Seconds that one request may take. */
const longestRequest = 10
/** What the library says of metadata in which the server has another name than it was asked by (RFC 8414, 3.3). */
const OtherIssuer = Schema.Struct({
  attribute: Schema.Literal("issuer"),
  body: Schema.Struct({ issuer: Schema.String })
})
const decodeOtherIssuer = Schema.decodeUnknownOption(OtherIssuer)

const failed = (message: string, temporary: boolean) =>
  new AuthorizationServerFailed({ message: visibleLine(message), temporary })

const refusal = (error: unknown): AuthorizationServerFailed => {
  if (error instanceof client.ResponseBodyError) {
    const { error: code, error_description: why, status } = error
    return failed(why === undefined ? code : `${why} (${code})`, status >= 500 || status === 429)
  }
  const response = error instanceof client.ClientError ? error.cause : undefined
  if (response instanceof Response)
    return failed(`it answers ${response.status}`, response.status >= 500 || response.status === 429)
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const other = cause instanceof Error ? Option.getOrUndefined(decodeOtherIssuer(cause.cause)) : undefined
  if (other !== undefined) {
    const { issuer } = other.body
    return failed(`it calls itself ${issuer} (SVC_PUBLIC_URL); use --api-url ${issuer}`, false)
  }
  return failed(cause instanceof Error ? cause.message : String(cause), true)
}

const ask = <A>(run: () => Promise<A>) => Effect.tryPromise({ try: run, catch: refusal })

/** A request about a code or a token. */
const about = <A>(run: () => Promise<A>) =>
  Effect.tryPromise({
    try: run,
    catch: (error) =>
      error instanceof client.ResponseBodyError && error.error === "invalid_grant"
        ? new InvalidGrant({ message: visibleLine(error.error_description ?? "it does not hold any more") })
        : refusal(error)
  })

/** Asks twice more where the server may answer in a moment. */
export const patiently = <A, E extends { readonly _tag: string }, R>(self: Effect.Effect<A, E, R>) =>
  Effect.retry(self, {
    times: 2,
    schedule: Schedule.jittered(Schedule.exponential(Duration.millis(300))),
    while: (error) =>
      error._tag === "AuthorizationServerFailed" && "temporary" in error && error.temporary === true
  })

/** What the server says of itself. Its issuer is the address that it was asked at, and its endpoints are there too. */
export const discover = Effect.fnUntraced(function* (apiUrl: string, clientId: ClientId) {
  const issuer = new URL(apiUrl)
  const execute = issuer.protocol === "http:" ? [client.allowInsecureRequests] : []
  const options = { algorithm: "oauth2", timeout: longestRequest, execute } as const
  const at = (address: URL) =>
    patiently(ask(() => client.discovery(address, clientId, undefined, client.None(), options)))
  // A control plane of this machine may call itself by its other name.
  const alias = new URL(apiUrl)
  if (alias.hostname === "127.0.0.1") alias.hostname = "localhost"
  const config = yield* at(issuer).pipe(
    Effect.catch((error) =>
      error.temporary || alias.hostname === issuer.hostname
        ? Effect.fail(error)
        : Effect.mapError(at(alias), () => error)
    )
  )
  const server = config.serverMetadata()
  const { origin } = new URL(server.issuer)
  for (const endpoint of [server.authorization_endpoint, server.token_endpoint, server.revocation_endpoint]) {
    if (endpoint === undefined || !URL.canParse(endpoint) || new URL(endpoint).origin !== origin)
      return yield* failed("its endpoints are missing or elsewhere", false)
  }
  return config
})

const tokenSet = (answer: client.TokenEndpointResponse) =>
  decodeAnswer(answer).pipe(
    Effect.map(
      ({ access_token, expires_in, organization, refresh_token, scope }): TokenSet => ({
        accessToken: Redacted.make(access_token),
        refreshToken: Redacted.make(refresh_token),
        expiresInMs: expires_in * 1_000,
        scopes: scope.split(" ").filter((one) => one !== ""),
        organization
      })
    ),
    // What it is about could be a token: only that it is wrong is said.
    Effect.mapError(() => failed("its answer lacks a token, or what the token is for", false))
  )

/** Turns the code of a callback into tokens. Asked once: a code that comes twice is a stolen one to the server. */
export const redeem = (
  config: client.Configuration,
  callback: URL,
  checks: { readonly pkceCodeVerifier: string; readonly expectedState: string }
) =>
  Effect.flatMap(
    about(() => client.authorizationCodeGrant(config, callback, checks)),
    tokenSet
  )

export const refresh = (config: client.Configuration, refreshToken: Redacted.Redacted) =>
  Effect.flatMap(
    about(() => client.refreshTokenGrant(config, Redacted.value(refreshToken))),
    tokenSet
  )

/** Ends the grant that the token is of. */
export const revoke = (config: client.Configuration, refreshToken: Redacted.Redacted) =>
  patiently(
    ask(() =>
      client.tokenRevocation(config, Redacted.value(refreshToken), { token_type_hint: "refresh_token" })
    )
  )
