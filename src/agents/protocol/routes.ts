/** The endpoints of the authorization server that programs call. The one that people see is the screen. */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { Audience } from "#src/access/CurrentAudience.ts"
import { type ProtocolRoute, protocolPaths } from "#src/api/page-paths.ts"
import { AppConfig } from "#src/config.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { AgentTokens, accessSeconds, type IssuedTokens } from "../AgentTokens.ts"
import { Clients, mostRedirects } from "../Clients.ts"
import { TokenRefused, type TooManyRequests } from "../errors.ts"
import { requestLimit } from "../request-limit.ts"
import { audienceOf, resourceOf } from "../resource-identifiers.ts"
import { failureAnswer, json, preflight } from "./answers.ts"
import { clientMetadata, type Form, form } from "./bodies.ts"
import * as metadata from "./metadata.ts"

type Answer = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  TokenRefused | TooManyRequests | StoreUnavailable,
  HttpServerRequest.HttpServerRequest
>

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const { publicUrl: issuer } = yield* AppConfig
    const tokens = yield* AgentTokens
    const clients = yield* Clients
    const { fromNetwork } = yield* requestLimit

    const token: Answer = Effect.gen(function* () {
      const posted = yield* form
      const clientId = yield* posted.need("client_id")
      const audience = yield* audienceIn(issuer, posted)
      const grantType = yield* posted.need("grant_type")
      switch (grantType) {
        case "authorization_code": {
          const code = yield* posted.need("code")
          const verifier = yield* posted.need("code_verifier")
          if (!/^[\w.~-]{43,128}$/.test(verifier)) {
            return yield* new TokenRefused({
              error: "invalid_grant",
              message: "code_verifier has 43 to 128 letters, digits and -._~"
            })
          }
          const redirectUri = posted.get("redirect_uri")
          return tokenAnswer(yield* tokens.redeem({ code, clientId, verifier, redirectUri, audience }))
        }
        case "refresh_token": {
          const presented = yield* posted.need("refresh_token")
          const scopes = posted
            .get("scope")
            ?.split(" ")
            .filter((scope) => scope !== "" && scope !== "offline_access")
          return tokenAnswer(yield* tokens.refresh({ token: presented, clientId, audience, scopes }))
        }
        default:
          return yield* new TokenRefused({
            error: "unsupported_grant_type",
            message: "grant_type is authorization_code or refresh_token"
          })
      }
    })

    const revoke: Answer = Effect.gen(function* () {
      const posted = yield* form
      const clientId = yield* posted.need("client_id")
      yield* tokens.revoke(yield* posted.need("token"), clientId)
      return json({})
    })

    const register: Answer = Effect.gen(function* () {
      const { client_name: name = "", redirect_uris: redirectUris } = yield* clientMetadata
      const client = clients.register(name, redirectUris)
      if (client === undefined) {
        return yield* new TokenRefused({
          error: "invalid_redirect_uri",
          message: `redirect_uris are 1 to ${mostRedirects} of: https, http on 127.0.0.1, [::1] or localhost, the scheme of a known editor`
        })
      }
      return json(
        {
          client_id: client.id,
          client_name: client.name,
          redirect_uris: client.redirectUris,
          token_endpoint_auth_method: "none",
          grant_types: ["authorization_code", "refresh_token"],
          response_types: ["code"]
        },
        201
      )
    })

    const resource = (audience: Audience): Answer =>
      Effect.map(HttpServerRequest.HttpServerRequest, ({ headers }) =>
        json(metadata.protectedResource(issuer, audience, headers["host"]))
      )

    const answers: Readonly<Record<ProtocolRoute, Answer>> = {
      "GET /.well-known/oauth-authorization-server": Effect.succeed(
        json(metadata.authorizationServer(issuer))
      ),
      "GET /.well-known/oauth-protected-resource": resource("api"),
      "GET /.well-known/oauth-protected-resource/mcp": resource("mcp"),
      "POST /oauth/token": Effect.andThen(fromNetwork, token),
      "POST /oauth/revoke": Effect.andThen(fromNetwork, revoke),
      "POST /oauth/register": Effect.andThen(fromNetwork, register)
    }
    return HttpRouter.addAll(
      protocolPaths.flatMap(([path, method]) => [
        HttpRouter.route(
          method,
          path,
          Effect.catch(answers[`${method} ${path}` as ProtocolRoute], (fault) =>
            Effect.succeed(failureAnswer(fault))
          )
        ),
        HttpRouter.route("OPTIONS", path, Effect.succeed(preflight))
      ])
    )
  })
)

/** The audience of the resources that a request names; undefined: it names none. */
const audienceIn = Effect.fnUntraced(function* (issuer: string, posted: Form) {
  const audiences = new Set(posted.all("resource").map((resource) => audienceOf(issuer, resource)))
  const [audience] = audiences
  if (audiences.size > 1 || audience === null) {
    return yield* new TokenRefused({
      error: "invalid_target",
      message: `resource is ${resourceOf(issuer, "api")} or ${resourceOf(issuer, "mcp")}`
    })
  }
  return audience
})

const tokenAnswer = ({ access, refresh, organization, role, scopes }: IssuedTokens) =>
  json({
    access_token: Redacted.value(access),
    token_type: "Bearer",
    expires_in: accessSeconds,
    refresh_token: Redacted.value(refresh),
    scope: scopes.join(" "),
    // Not of the RFC: what the person decided besides.
    organization,
    role
  })
