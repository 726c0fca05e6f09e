/** Words that several pages of agents use. */
import type { GrantRole } from "../scopes.ts"

export const withArticle: Readonly<Record<GrantRole, string>> = { admin: "an admin", member: "a member" }
