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
  AccessPolicy: lazily(async (get) => (await get(() => import("./access.tsx"))).AccessPanel),
  AiGateway: lazily(async (get) => (await get(() => import("./ai-gateway.tsx"))).AiGatewayPanel),
  Alert: lazily(async (get) => (await get(() => import("./alert.tsx"))).AlertPanel),
  App: lazily(async (get) => (await get(() => import("./app.tsx"))).AppPanel),
  Budget: lazily(async (get) => (await get(() => import("./budget.tsx"))).BudgetPanel),
  Cache: lazily(async (get) => (await get(() => import("./cache.tsx"))).CachePanel),
  Cron: lazily(async (get) => (await get(() => import("./cron.tsx"))).CronPanel),
  CustomerPayments: lazily(async (get) => (await get(() => import("./payments.tsx"))).PaymentsPanel),
  Database: lazily(async (get) => (await get(() => import("./database.tsx"))).DatabasePanel),
  DatabaseBranch: lazily(async (get) => (await get(() => import("./branch.tsx"))).BranchPanel),
  Deployment: lazily(async (get) => (await get(() => import("./deployment.tsx"))).DeploymentPanel),
  Domain: lazily(async (get) => (await get(() => import("./domain.tsx"))).DomainPanel),
  EnvVariables: lazily(async (get) => (await get(() => import("./variables.tsx"))).VariablesPanel),
  Execution: lazily(async (get) => (await get(() => import("./execution.tsx"))).ExecutionPanel),
  Preview: lazily(async (get) => (await get(() => import("./preview.tsx"))).PreviewPanel),
  Queue: lazily(async (get) => (await get(() => import("./queue.tsx"))).QueuePanel)
}

const inOrganization: Readonly<Record<string, ComponentType<OrganizationServiceProps>>> = {
  BackupDestination: lazily(async (get) => (await get(() => import("./destination.tsx"))).DestinationPanel),
  GitSource: lazily(async (get) => (await get(() => import("./git-source.tsx"))).GitSourcePanel)
}

const Measured = lazily(async (get) => (await get(() => import("./measurements.tsx"))).Measurements)
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
