/** Organizations and who may do what in them: members, invitations, keys, the audit log, billing. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { ApiKeys } from "./api/api-keys.ts"
import { AuditLog } from "./api/audit.ts"
import { Invitations } from "./api/invitations.ts"
import { Members } from "./api/members.ts"
import { Orgs } from "./api/orgs.ts"

export const organizations = defineFeature({
  groups: [Orgs, Members, Invitations, ApiKeys, AuditLog],
  untraced: ["/v1/invitations/"],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const [{ invitations, members, orgs }, { audit, keys }, { adminBilling, adminOrgs }] = await Promise.all([
      import("./commands/orgs.ts"),
      import("./commands/keys.ts"),
      import("./commands/admin.ts")
    ])
    return {
      commands: [orgs, members, invitations, keys, audit],
      admin: [adminOrgs, adminBilling]
    }
  }
})
