import * as Layer from "effect/Layer"
import * as agentGrants from "#src/api/agent-grants.ts"
import * as apikeys from "#src/api/apikeys.ts"
import * as audit from "#src/api/audit.ts"
import type { AgentGrants as AgentGrantOperations } from "#src/api/definition/agent-grants.ts"
import type { ApiKeys as ApiKeyOperations } from "#src/api/definition/apikeys.ts"
import type { AuditLog as AuditOperations } from "#src/api/definition/audit.ts"
import type { Invitations as InvitationOperations } from "#src/api/definition/invitations.ts"
import type { Members as MemberOperations } from "#src/api/definition/members.ts"
import type { Orgs } from "#src/api/definition/orgs.ts"
import * as invitations from "#src/api/invitations.ts"
import * as members from "#src/api/members.ts"
import * as orgs from "#src/api/orgs.ts"
import type { Server } from "#src/feature.ts"
import { AgentGrants } from "#src/store/AgentGrants.ts"
import { ApiKeys } from "#src/store/ApiKeys.ts"
import { AuditLog } from "#src/store/AuditLog.ts"
import { Members } from "#src/store/Members.ts"
import { Organizations } from "#src/store/Organizations.ts"
import { invitationRecords } from "./services.ts"

export const server: Server<
  | typeof Orgs
  | typeof MemberOperations
  | typeof InvitationOperations
  | typeof ApiKeyOperations
  | typeof AgentGrantOperations
  | typeof AuditOperations
> = {
  handlers: Layer.mergeAll(
    orgs.layer.pipe(Layer.provide(Organizations.layer)),
    members.layer.pipe(Layer.provide(Members.layer)),
    invitations.layer.pipe(Layer.provide(invitationRecords)),
    apikeys.layer.pipe(Layer.provide(ApiKeys.layer)),
    agentGrants.layer.pipe(Layer.provide(AgentGrants.layer)),
    audit.layer.pipe(Layer.provide(AuditLog.layer))
  )
}
