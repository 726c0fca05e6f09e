/** Who calls the MCP endpoint, and what they may run. */
import type { Role } from "#schemas/kind.ts"
import type { Credential } from "#src/access/Access.ts"
import type { Operation } from "#src/api/definition/operation.ts"

export interface Caller {
  readonly credential: Credential
  readonly credentialId: string
  readonly organization: { readonly id: string; readonly slug: string; readonly role: Role }
}

const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }

/**
 * Why a caller may not run an operation, as a sentence; undefined: they may, as far as that can be told before it is
 * tried. Nothing is decided by it: the API judges each operation that is run.
 */
export const refusal = (operation: Operation, caller: Caller | undefined): string | undefined => {
  if (!operation.credentials.includes("key")) return "Only a person does this, signed in at the service"
  if (caller === undefined) return "Sign in, or send an API key"
  if (operation.role !== null && rank[caller.organization.role] < rank[operation.role])
    return `It needs the role ${operation.role}; this credential has ${caller.organization.role}`
  return undefined
}
