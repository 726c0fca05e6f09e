import * as Layer from "effect/Layer"
import { AgentGrants } from "#src/agents/AgentGrants.ts"
import type { Server } from "#src/feature.ts"
import { ApiKeys } from "./ApiKeys.ts"
import { AuditReader } from "./AuditReader.ts"
import type { ApiKeys as ApiKeyOperations } from "./api/api-keys.ts"
import type { AuditLog as AuditOperations } from "./api/audit.ts"
import type { Invitations as InvitationOperations } from "./api/invitations.ts"
import type { Members as MemberOperations } from "./api/members.ts"
import type { Orgs } from "./api/orgs.ts"
import * as apikeys from "./handlers/api-keys.ts"
import * as audit from "./handlers/audit.ts"
import * as invitations from "./handlers/invitations.ts"
import * as members from "./handlers/members.ts"
import * as orgs from "./handlers/orgs.ts"
import { Members } from "./Members.ts"
import { Organizations } from "./Organizations.ts"
import { invitationRecords } from "./services.ts"

export const server: Server<
  | typeof Orgs
  | typeof MemberOperations
  | typeof InvitationOperations
  | typeof ApiKeyOperations
  | typeof AuditOperations
> = {
  handlers: Layer.mergeAll(
    orgs.layer.pipe(Layer.provide(Organizations.layer)),
    members.layer.pipe(Layer.provide(Members.layer)),
    invitations.layer.pipe(Layer.provide(invitationRecords)),
    apikeys.layer.pipe(Layer.provide(ApiKeys.layer)),
    audit.layer.pipe(Layer.provide([AuditReader.layer, AgentGrants.layer]))
  )
}
