/** The daily work of a service, by the kind of the resource. Kinds that have none of their own show nothing here. */
import type { ComponentType } from "react"
import type { Resource } from "../live/resources.ts"
import { lazily } from "../parts/lazily.ts"

export interface ServiceProps {
  readonly resource: Resource
  readonly project: string
}

export interface OrganizationServiceProps {
  readonly resource: Resource
}

const inProject: Readonly<Record<string, ComponentType<ServiceProps>>> = {
  AccessPolicy: lazily(async () => (await import("./access.tsx")).AccessPanel),
  AiGateway: lazily(async () => (await import("./ai-gateway.tsx")).AiGatewayPanel),
  Alert: lazily(async () => (await import("./alert.tsx")).AlertPanel),
  App: lazily(async () => (await import("./app.tsx")).AppPanel),
  Budget: lazily(async () => (await import("./budget.tsx")).BudgetPanel),
  Cache: lazily(async () => (await import("./cache.tsx")).CachePanel),
  Cron: lazily(async () => (await import("./cron.tsx")).CronPanel),
  CustomerPayments: lazily(async () => (await import("./payments.tsx")).PaymentsPanel),
  Database: lazily(async () => (await import("./database.tsx")).DatabasePanel),
  DatabaseBranch: lazily(async () => (await import("./branch.tsx")).BranchPanel),
  Deployment: lazily(async () => (await import("./deployment.tsx")).DeploymentPanel),
  Domain: lazily(async () => (await import("./domain.tsx")).DomainPanel),
  EnvVariables: lazily(async () => (await import("./variables.tsx")).VariablesPanel),
  Execution: lazily(async () => (await import("./execution.tsx")).ExecutionPanel),
  Preview: lazily(async () => (await import("./preview.tsx")).PreviewPanel),
  Queue: lazily(async () => (await import("./queue.tsx")).QueuePanel)
}

const inOrganization: Readonly<Record<string, ComponentType<OrganizationServiceProps>>> = {
  BackupDestination: lazily(async () => (await import("./destination.tsx")).DestinationPanel),
  GitSource: lazily(async () => (await import("./git-source.tsx")).GitSourcePanel)
}

const Measured = lazily(async () => (await import("./measurements.tsx")).Measurements)
const measured: ReadonlySet<string> = new Set([
  "Cache",
  "Cron",
  "Database",
  "DatabaseBranch",
  "Environment",
  "Execution",
  "Queue"
])

const Service = ({ resource }: { readonly resource: Resource }) => {
  const { project, kind } = resource
  const Panel = project === null ? undefined : inProject[kind]
  const OfOrganization = inOrganization[kind]
  return (
    <>
      {Panel !== undefined && project !== null && <Panel resource={resource} project={project} />}
      {OfOrganization !== undefined && <OfOrganization resource={resource} />}
      {measured.has(kind) && <Measured resource={resource} />}
    </>
  )
}
export default Service
