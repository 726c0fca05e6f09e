/**
 * Signing in by browser: authorization code with PKCE (S256) at the control plane's authorization screen. The person
 * chooses organization and operations there; neither their session nor their password ever comes here.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as client from "openid-client"
import { type ClientId, discover, redeem } from "./authorization-server.ts"
import { callback } from "./callback.ts"
import { type CliFailure, exitCodes, failure } from "./failure.ts"
import { OpenBrowser } from "./open-browser.ts"
import { say, sayText } from "./output.ts"
import { end, keep } from "./tokens.ts"
import { visibleLine } from "./visible.ts"

interface Wish {
  readonly apiUrl: string
  readonly clientId: ClientId
  /** The command that signs in, for whoever has to run it again. */
  readonly again: string
  /** Whether a browser is opened here; if not, its last address may be pasted. */
  readonly browser: boolean
  readonly role: "admin" | "member"
  /** The operations to ask for, of those that the server says it grants. */
  readonly scopes: (grantable: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, CliFailure>
}

interface SignedIn {
  /** Of the sign-in (`tokens.ts`). */
  readonly id: string
  readonly organization: string
}

/** Runs with the new sign-in, which does not outlast a failure. */
export const signIn = <A, E, R>(wish: Wish, use: (made: SignedIn) => Effect.Effect<A, E, R>) =>
  Effect.flatMap(askFor(wish), ({ config, found, ...checks }) =>
    Effect.acquireUseRelease(
      redeem(config, found, checks).pipe(
        Effect.mapError(({ message }) => failure(`Not signed in: ${message}`, exitCodes.authentication)),
        Effect.flatMap((tokens) =>
          Effect.map(keep(wish, tokens), (id): SignedIn => ({ id, organization: tokens.organization }))
        )
      ),
      use,
      ({ id }, exit) => (Exit.isSuccess(exit) ? Effect.void : Effect.ignore(end(id)))
    )
  )

/** The address with the code that the browser came back to. */
const askFor = (wish: Wish) =>
  Effect.gen(function* () {
    const cannot = ({ message }: { readonly message: string }) =>
      failure(`${wish.apiUrl} cannot sign anybody in: ${message}`)
    const config = yield* Effect.mapError(discover(wish.apiUrl, wish.clientId), cannot)
    const { issuer, scopes_supported: grantable = [] } = config.serverMetadata()
    const scopes = yield* wish.scopes(grantable)
    const { answer, redirectUri } = yield* callback
    const verifier = client.randomPKCECodeVerifier()
    const state = client.randomState()
    const url = client.buildAuthorizationUrl(config, {
      redirect_uri: redirectUri,
      scope: scopes.join(" "),
      role: wish.role,
      state,
      code_challenge: yield* Effect.promise(() => client.calculatePKCECodeChallenge(verifier)),
      code_challenge_method: "S256"
    })
    const opened = wish.browser && (yield* (yield* OpenBrowser)(url))
    yield* opened
      ? say("Your browser shows what is asked for. If it does not, open this address:")
      : say("Open this address in a browser:")
    yield* sayText(`\n  ${url.href}\n`)
    yield* wish.browser
      ? say(`Waiting for your answer. If the browser is on another machine, use ${wish.again} --no-browser.`)
      : say(
          "If that browser is on another machine, its last page does not load. Paste the address of that page here:"
        )
    const found = yield* answer({ state, issuer }, { pasted: !wish.browser })
    const error = found.searchParams.get("error")
    if (error !== null) {
      const why =
        error === "access_denied"
          ? "it was denied in the browser"
          : (found.searchParams.get("error_description") ?? error)
      return yield* failure(visibleLine(`Not signed in: ${why}`), exitCodes.authentication)
    }
    return { config, found, pkceCodeVerifier: verifier, expectedState: state }
  }).pipe(Effect.scoped)
