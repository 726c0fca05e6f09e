/**
 * Signing in with an OpenID Connect provider: authorization code with PKCE (S256), state and nonce.
 *
 * What has to be remembered between leaving and coming back is sealed into a cookie of the browser that left, so the
 * answer is good in that browser only, and nothing is stored for visitors who never come back.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { Configuration } from "openid-client"
import { AppConfig, type OidcProvider } from "#src/config.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { ProviderFailed } from "./errors.ts"
import type { Claims } from "./Identity.ts"

export const flowCookie = "svc_oidc"
export const flowMinutes = 10
const discoveryMinutes = 60

const Flow = Schema.fromJsonString(
  Schema.Struct({
    provider: Schema.String,
    state: Schema.String,
    nonce: Schema.String,
    verifier: Schema.String,
    next: Schema.String,
    expiresAt: Schema.Finite
  })
)
type Flow = typeof Flow.Type
const encodeFlow = Schema.encodeEffect(Flow)
const decodeFlow = Schema.decodeUnknownEffect(Flow)

const IdClaims = Schema.Struct({
  iss: Schema.String,
  sub: Schema.String,
  email: Schema.optional(Schema.String),
  // Some providers say it as text.
  email_verified: Schema.optional(Schema.Union([Schema.Boolean, Schema.String])),
  name: Schema.optional(Schema.String)
})
const decodeClaims = Schema.decodeUnknownEffect(IdClaims)

/** Much to load, and nothing where there are no providers. */
const library = Effect.promise(() => import("openid-client"))

const restart = new ProviderFailed({
  message: "Signing in took too long or was begun in another browser. Begin again."
})

export class Oidc extends Context.Service<
  Oidc,
  {
    readonly providers: ReadonlyArray<Pick<OidcProvider, "id" | "name">>
    /** Where to send the browser, and the cookie it has to bring back. `next` is a path of ours. */
    readonly leave: (
      provider: string,
      next: string
    ) => Effect.Effect<{ readonly url: string; readonly cookie: string }, ProviderFailed>
    /** `query` is what the provider sent the browser back with. */
    readonly comeBack: (
      provider: string,
      query: string,
      cookie: string | undefined
    ) => Effect.Effect<{ readonly claims: Claims; readonly next: string }, ProviderFailed>
  }
>()("svc/identity/Oidc") {
  static readonly layer = Layer.effect(
    Oidc,
    Effect.gen(function* () {
      const { oidcProviders, publicUrl } = yield* AppConfig
      const ring = yield* KeyRing
      const byId = new Map(oidcProviders.map((one) => [one.id, one]))
      const found = new Map<string, { readonly at: number; readonly config: Configuration }>()
      const place = (provider: string) => ["oidc", provider]
      const callback = (id: string) => `${publicUrl}/v1/auth/oidc/${id}/callback`

      /** What went wrong is for the operator; the visitor learns that it did. */
      const ask = <A>(provider: OidcProvider, what: string, run: () => Promise<A>) =>
        Effect.tryPromise(run).pipe(
          Effect.timeout("20 seconds"),
          Effect.tapError((error) =>
            Effect.logWarning(`signing in with ${provider.id}: ${what} failed: ${reasonOf(error)}`)
          ),
          Effect.mapError(
            () => new ProviderFailed({ message: `Signing in with ${provider.name} did not work. Try again.` })
          )
        )

      const discover = Effect.fnUntraced(function* (id: string) {
        const provider = byId.get(id)
        if (provider === undefined) return yield* new ProviderFailed({ message: "There is no such provider" })
        const now = yield* Clock.currentTimeMillis
        const known = found.get(id)
        if (known !== undefined && now - known.at < discoveryMinutes * 60_000) {
          return { provider, config: known.config }
        }
        const client = yield* library
        const issuer = new URL(provider.issuer)
        const config = yield* ask(provider, "reading its configuration", () =>
          client.discovery(issuer, provider.clientId, Redacted.value(provider.clientSecret), undefined, {
            timeout: 10,
            // Settings let plain HTTP pass for loopback only.
            execute:
              issuer.protocol === "http:"
                ? [client.allowInsecureRequests, client.enableNonRepudiationChecks]
                : [client.enableNonRepudiationChecks]
          })
        )
        found.set(id, { at: now, config })
        return { provider, config }
      })

      const seal = (flow: Flow) =>
        Effect.map(Effect.orDie(encodeFlow(flow)), (text) => {
          const { keyId, bytes } = ring.seal(place(flow.provider), Redacted.make(text))
          return `${keyId}.${Buffer.from(bytes).toString("base64url")}`
        })

      const open = Effect.fnUntraced(function* (provider: string, cookie: string | undefined) {
        const [, keyId, bytes] = /^([A-Za-z0-9_-]{1,40})\.([A-Za-z0-9_-]{40,4000})$/.exec(cookie ?? "") ?? []
        if (keyId === undefined || bytes === undefined) return yield* restart
        const text = yield* ring.open(place(provider), { keyId, bytes: Buffer.from(bytes, "base64url") })
        const flow = yield* decodeFlow(Redacted.value(text))
        return flow.expiresAt > (yield* Clock.currentTimeMillis) ? flow : yield* restart
      })

      return Oidc.of({
        providers: oidcProviders.map(({ id, name }) => ({ id, name })),
        leave: Effect.fn("Oidc.leave")(function* (id, next) {
          const client = yield* library
          const { config } = yield* discover(id)
          const verifier = client.randomPKCECodeVerifier()
          const [state, nonce] = [client.randomState(), client.randomNonce()]
          const challenge = yield* Effect.promise(() => client.calculatePKCECodeChallenge(verifier))
          const url = client.buildAuthorizationUrl(config, {
            redirect_uri: callback(id),
            scope: "openid email profile",
            code_challenge: challenge,
            code_challenge_method: "S256",
            state,
            nonce
          })
          const expiresAt = (yield* Clock.currentTimeMillis) + flowMinutes * 60_000
          const cookie = yield* seal({ provider: id, state, nonce, verifier, next, expiresAt })
          return { url: url.href, cookie }
        }),
        comeBack: Effect.fn("Oidc.comeBack")(function* (id, query, cookie) {
          const client = yield* library
          const { provider, config } = yield* discover(id)
          const flow = yield* Effect.mapError(open(id, cookie), () => restart)
          const parameters = new URLSearchParams(query)
          if (parameters.get("state") === flow.state && parameters.get("error") === "access_denied") {
            return yield* new ProviderFailed({ message: `You did not let ${provider.name} sign you in.` })
          }
          // The address it came to is made of configuration, never of the request's Host field.
          const tokens = yield* ask(provider, "its answer", () =>
            client.authorizationCodeGrant(config, new URL(`${callback(id)}?${query}`), {
              pkceCodeVerifier: flow.verifier,
              expectedState: flow.state,
              expectedNonce: flow.nonce,
              idTokenExpected: true
            })
          )
          const told = tokens.claims()
          // Not every provider puts the address into the token.
          const asked =
            told !== undefined && told["email"] === undefined
              ? yield* ask(provider, "asking who it is", () =>
                  client.fetchUserInfo(config, tokens.access_token, told.sub)
                )
              : {}
          const claims = yield* Effect.mapError(
            decodeClaims({ ...asked, ...told }),
            () => new ProviderFailed({ message: `${provider.name} did not say who you are.` })
          )
          return {
            claims: {
              provider: id,
              issuer: claims.iss,
              subject: claims.sub,
              email: claims.email,
              emailVerified: claims.email_verified === true || claims.email_verified === "true",
              name: claims.name
            },
            next: flow.next
          }
        })
      })
    })
  )
}

/** Messages of the library name claims and parameters, never their values; answers of a provider may hold anything. */
const reasonOf = (error: unknown): string => {
  const cause = typeof error === "object" && error !== null && "cause" in error ? error.cause : error
  if (!(cause instanceof Error)) return "no reason"
  const code = "code" in cause && typeof cause.code === "string" ? ` (${cause.code})` : ""
  return `${cause.message}${code}`
}
