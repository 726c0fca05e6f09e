/** Every kind of resource there is. The order is the order of creation among kinds that do not depend on each other. */
import { AccessPolicy } from "./access-policy.ts"
import { AiGateway } from "./ai-gateway.ts"
import { Alert } from "./alert.ts"
import { App } from "./app.ts"
import { BackupDestination } from "./backup-destination.ts"
import { Budget } from "./budget.ts"
import { Cache } from "./cache.ts"
import { Cron } from "./cron.ts"
import { CustomerPayments } from "./customer-payments.ts"
import { Database } from "./database.ts"
import { DatabaseBranch } from "./database-branch.ts"
import { Deployment } from "./deployment.ts"
import { Domain } from "./domain.ts"
import { EnvVariables } from "./env-variables.ts"
import { Environment } from "./environment.ts"
import { Execution } from "./execution.ts"
import { GitSource } from "./git-source.ts"
import type { Kind } from "./kind.ts"
import { Maintenance } from "./maintenance.ts"
import { Preview } from "./preview.ts"
import { Project } from "./project.ts"
import { Queue } from "./queue.ts"

export const kinds = [
  BackupDestination,
  Project,
  AccessPolicy,
  Budget,
  Environment,
  Domain,
  EnvVariables,
  Database,
  DatabaseBranch,
  Cache,
  Queue,
  AiGateway,
  CustomerPayments,
  Cron,
  Execution,
  Maintenance,
  Alert,
  App,
  Deployment,
  GitSource,
  Preview
] as const

const byName: ReadonlyMap<string, Kind> = new Map(kinds.map((kind): [string, Kind] => [kind.name, kind]))
export const findKind = (name: string): Kind | undefined => byName.get(name)
