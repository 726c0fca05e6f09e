/** Every operation there is. The server, the clients, the specification and the documentation come from here. */
import * as HttpApi from "effect/http-api/HttpApi"
import * as OpenApi from "effect/http-api/OpenApi"
import { AgentGrants } from "./agent-grants.ts"
import { ApiKeys } from "./apikeys.ts"
import { AuditLog } from "./audit.ts"
import { BackupDestinations } from "./backup-destinations.ts"
import { Backups, Databases } from "./backups.ts"
import { Caches } from "./caches.ts"
import { Crons } from "./crons.ts"
import { Database } from "./database.ts"
import { DatabaseBranches } from "./database-branches.ts"
import { Env } from "./env.ts"
import { Executions } from "./executions.ts"
import { Invitations } from "./invitations.ts"
import { ApplyRequest, Manifest, ManifestDocument } from "./manifest.ts"
import { Members } from "./members.ts"
import { completed, type Generated } from "./openapi.ts"
import { Orgs } from "./orgs.ts"
import { Environments, Projects } from "./projects.ts"
import { Queues } from "./queues.ts"
import { Resources } from "./resources.ts"
import { Gate } from "./scope.ts"
import { Sessions, SignIn } from "./sign-in.ts"
import { Me, System } from "./system.ts"
import { Webhooks } from "./webhooks.ts"

const operations = HttpApi.make("svc")
  .add(Projects, Environments, Env, Caches, Database, Manifest, Resources, Me)
  .add(Databases, DatabaseBranches, Backups, Crons, Queues, Executions)
  .add(BackupDestinations)
  .add(Orgs, Members, Invitations, ApiKeys, AgentGrants, AuditLog, Sessions)
  .add(Webhooks)
  .middleware(Gate)
  .add(SignIn, System)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.ParamsParseOptions, { errors: "all" })

export class Api extends operations
  .annotate(HttpApi.AdditionalSchemas, [ManifestDocument, ApplyRequest])
  .annotateMerge(
    OpenApi.annotations({
      title: "svc control plane",
      version: "1",
      description:
        "Resources are stored as desired state and converged by reconcile loops. Errors are problem details (RFC 9457).",
      license: { name: "MIT", identifier: "MIT" },
      // Wherever the document comes from; the served one names the public address.
      servers: [{ url: "/" }],
      transform: (document) => completed(document as Generated, Object.values(operations.groups))
    })
  ) {}
