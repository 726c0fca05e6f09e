/** A real OpenID Connect provider on loopback that lets in whoever the test says, without asking. */
import { createServer, type Server } from "node:http"
import * as Effect from "effect/Effect"
import Provider from "oidc-provider"

export interface Known {
  readonly sub: string
  readonly email?: string
  readonly verified?: boolean
  readonly name?: string
}

export interface IdentityProvider {
  readonly issuer: string
  /** Who is sitting at the browser. Undefined: they decline. */
  who: Known | undefined
  readonly stop: Effect.Effect<void>
}

export const clientId = "svc"
export const clientSecret = "a-secret-of-the-client-that-is-long"

export const identityProvider = Effect.fn(function* (port: number, redirectUri: string) {
  const issuer = `http://127.0.0.1:${port}`
  const known = new Map<string, Known>()
  const self: IdentityProvider = { issuer, who: undefined, stop: Effect.suspend(() => closing) }
  const provider = new Provider(issuer, {
    clients: [{ client_id: clientId, client_secret: clientSecret, redirect_uris: [redirectUri] }],
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    cookies: { keys: ["a key for cookies"] },
    interactions: { url: (_, { uid }) => `/who/${uid}` },
    findAccount: (_, sub) => ({
      accountId: sub,
      claims: () => {
        const { email, verified = true, name } = known.get(sub) ?? { sub }
        return {
          sub,
          ...(email === undefined ? {} : { email, email_verified: verified }),
          ...(name === undefined ? {} : { name })
        }
      }
    }),
    loadExistingGrant: async ({ oidc }) => {
      const accountId = oidc.session?.accountId
      const grant = new oidc.provider.Grant({
        clientId: oidc.client?.clientId ?? "",
        ...(accountId === undefined ? {} : { accountId })
      })
      grant.addOIDCScope("openid email profile")
      await grant.save()
      return grant
    }
  })
  provider.on("server_error", () => {
    // The tests see what comes of it.
  })
  const answer = provider.callback()
  const server: Server = createServer((request, response) => {
    if (request.url?.startsWith("/who/") !== true) return void answer(request, response)
    const { who } = self
    if (who !== undefined) known.set(who.sub, who)
    void provider.interactionFinished(
      request,
      response,
      who === undefined ? { error: "access_denied" } : { login: { accountId: who.sub } }
    )
  })
  const closing = Effect.promise(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      })
  )
  yield* Effect.promise(() => new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve)))
  yield* Effect.addFinalizer(() => self.stop)
  return self
})

/** Goes through the provider as a browser would, to the address that it sends the browser back to. */
export const passProvider = (start: string, issuer: string): Promise<string> => {
  const cookies = new Map<string, string>()
  const step = async (target: string, left: number): Promise<string> => {
    if (!target.startsWith(issuer)) return target
    if (left === 0) throw new Error("the provider sends in circles")
    const response = await fetch(target, {
      redirect: "manual",
      signal: AbortSignal.timeout(60_000),
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") }
    })
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
      cookies.set(name, value)
    }
    const text = await response.text()
    const location = response.headers.get("location")
    if (location === null) throw new Error(`the provider answered ${response.status}: ${text.slice(0, 300)}`)
    return step(new URL(location, target).href, left - 1)
  }
  return step(start, 8)
}
