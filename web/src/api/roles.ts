/** What the caller's role allows, by the operations' own declarations. */
import * as Context from "effect/Context"
import type { Role } from "#schemas/kind.ts"
import { Operation } from "#src/api/definition/operation.ts"

const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }

export const roleOf = (text: string): Role => (text === "owner" || text === "admin" ? text : "member")

/** Undefined: the role may. Otherwise the role that it takes. */
export const takesRole = (
  endpoint: { readonly annotations: Context.Context<never> },
  role: Role
): Role | undefined => {
  const needed = Context.get(endpoint.annotations, Operation)?.role ?? "member"
  return rank[role] >= rank[needed] ? undefined : needed
}
