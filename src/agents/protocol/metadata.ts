/** What the authorization server says of itself (RFC 8414), and of what its tokens are for (RFC 9728). */

import type { Audience } from "#src/access/CurrentAudience.ts"
import { originOf, resourceOf } from "../resource-identifiers.ts"
import { baseline, grantable } from "../scopes.ts"

export const authorizationServer = (issuer: string) => ({
  issuer,
  authorization_endpoint: `${issuer}/agent/authorize`,
  token_endpoint: `${issuer}/oauth/token`,
  registration_endpoint: `${issuer}/oauth/register`,
  revocation_endpoint: `${issuer}/oauth/revoke`,
  response_types_supported: ["code"],
  response_modes_supported: ["query"],
  grant_types_supported: ["authorization_code", "refresh_token"],
  code_challenge_methods_supported: ["S256"],
  token_endpoint_auth_methods_supported: ["none"],
  revocation_endpoint_auth_methods_supported: ["none"],
  client_id_metadata_document_supported: true,
  authorization_response_iss_parameter_supported: true,
  scopes_supported: [...grantable.keys()]
})

/** `host` is what the client called us. Scopes are those to begin with; a challenge names the others when they are needed. */
export const protectedResource = (issuer: string, audience: Audience, host: string | undefined) => ({
  resource: resourceOf(originOf(issuer, host), audience),
  authorization_servers: [issuer],
  bearer_methods_supported: ["header"],
  scopes_supported: baseline
})
