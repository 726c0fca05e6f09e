/** Who calls the MCP endpoint, and what they may run. */
import type { Role } from "#schemas/kind.ts"
import type { Credential, Identity } from "#src/access/Access.ts"
import type { Operation } from "#src/api/definition/operation.ts"

export interface Caller {
  readonly credential: Credential
  /** As it was found when the request came. */
  readonly identity: Identity
  readonly organization: NonNullable<Identity["organization"]>
}

const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }

/**
 * Why a caller may not run an operation, as a sentence; undefined: they may, as far as that can be told before it is
 * tried. Nothing is decided by it: the API judges each operation that is run.
 */
export const refusal = (operation: Operation, caller: Caller | undefined): string | undefined => {
  if (!operation.credentials.includes("key")) return "Only a person does this, signed in at the service"
  if (caller === undefined) return "Sign in, or send an API key"
  const { credential, identity, organization } = caller
  if (!operation.credentials.includes(credential.kind)) return "No agent can be granted this"
  if (identity.grant !== undefined && !identity.grant.scopes.includes(operation.id))
    return "It was not granted to you; running it has your client ask the person for it"
  if (operation.role !== null && rank[organization.role] < rank[operation.role])
    return `It needs the role ${operation.role}; this credential has ${organization.role}`
  return undefined
}
