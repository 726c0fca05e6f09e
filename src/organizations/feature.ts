/** Organizations and who may do what in them: members, invitations, keys, grants, the audit log, billing. */
import { AgentGrants } from "#src/api/definition/agent-grants.ts"
import { ApiKeys } from "#src/api/definition/apikeys.ts"
import { AuditLog } from "#src/api/definition/audit.ts"
import { Invitations } from "#src/api/definition/invitations.ts"
import { Members } from "#src/api/definition/members.ts"
import { Orgs } from "#src/api/definition/orgs.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const organizations = defineFeature({
  groups: [Orgs, Members, Invitations, ApiKeys, AgentGrants, AuditLog],
  untraced: ["/v1/invitations/"],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const [{ invitations, members, orgs }, { audit, grants, keys }, { adminBilling, adminOrgs }] =
      await Promise.all([
        import("#src/cli/people-commands.ts"),
        import("#src/cli/key-commands.ts"),
        import("#src/cli/admin-commands.ts")
      ])
    return {
      commands: [orgs, members, invitations, keys, grants, audit],
      admin: [adminOrgs, adminBilling]
    }
  }
})
