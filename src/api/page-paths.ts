/** Routes that are no operations. The router and the answer to a wrong method read it from here. */

/** Signing in, and one's own account. */
export const identityPaths = [
  ["/sign-in", "GET"],
  ["/sign-in", "POST"],
  ["/sign-in/by-mail", "GET"],
  ["/sign-in/by-mail", "POST"],
  ["/sign-in/link", "GET"],
  ["/sign-in/link", "POST"],
  ["/sign-up", "GET"],
  ["/sign-up", "POST"],
  ["/check-mail", "GET"],
  ["/reset-password", "GET"],
  ["/reset-password", "POST"],
  ["/reset-password/new", "GET"],
  ["/reset-password/new", "POST"],
  ["/account", "GET"],
  ["/account/password", "GET"],
  ["/account/password", "POST"],
  ["/account/prove", "GET"],
  ["/account/prove", "POST"],
  ["/account/sessions/end", "POST"],
  ["/account/sign-out", "POST"],
  ["/account/sign-out-everywhere", "POST"],
  ["/invitation", "GET"],
  ["/invitation", "POST"],
  ["/v1/auth/oidc/:provider", "GET"],
  ["/v1/auth/oidc/:provider/callback", "GET"]
] as const

/** Letting an agent in, and taking that back. */
export const agentPaths = [
  ["/agent/authorize", "GET"],
  ["/agent/authorize", "POST"],
  ["/account/agents", "GET"],
  ["/account/agents/revoke", "POST"]
] as const

/** From a protected app to signing in, and back with a code. */
export const visitorPaths = [
  ["/access", "GET"],
  ["/access", "POST"]
] as const

export const pagePaths = [...identityPaths, ...agentPaths, ...visitorPaths] as const

/** What programs of agents call by the standards of OAuth, beside operations. Pages of any site may, so OPTIONS is theirs. */
export const protocolPaths = [
  ["/.well-known/oauth-authorization-server", "GET"],
  ["/.well-known/oauth-protected-resource", "GET"],
  ["/.well-known/oauth-protected-resource/mcp", "GET"],
  ["/oauth/token", "POST"],
  ["/oauth/revoke", "POST"],
  ["/oauth/register", "POST"]
] as const

type Named<Pair> = Pair extends readonly [infer Path extends string, infer Method extends string]
  ? `${Method} ${Path}`
  : never
/** Such as `GET /sign-in`. */
export type PageRoute<Paths extends ReadonlyArray<readonly [string, string]>> = Named<Paths[number]>
/** Such as `POST /oauth/token`. */
export type ProtocolRoute = Named<(typeof protocolPaths)[number]>
