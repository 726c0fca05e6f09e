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
  AccessPolicy: lazily(
    () => import("./access.tsx"),
    (file) => file.AccessPanel
  ),
  AiGateway: lazily(
    () => import("./ai-gateway.tsx"),
    (file) => file.AiGatewayPanel
  ),
  Alert: lazily(
    () => import("./alert.tsx"),
    (file) => file.AlertPanel
  ),
  App: lazily(
    () => import("./app.tsx"),
    (file) => file.AppPanel
  ),
  Budget: lazily(
    () => import("./budget.tsx"),
    (file) => file.BudgetPanel
  ),
  Cache: lazily(
    () => import("./cache.tsx"),
    (file) => file.CachePanel
  ),
  Cron: lazily(
    () => import("./cron.tsx"),
    (file) => file.CronPanel
  ),
  CustomerPayments: lazily(
    () => import("./payments.tsx"),
    (file) => file.PaymentsPanel
  ),
  Database: lazily(
    () => import("./database.tsx"),
    (file) => file.DatabasePanel
  ),
  DatabaseBranch: lazily(
    () => import("./branch.tsx"),
    (file) => file.BranchPanel
  ),
  Deployment: lazily(
    () => import("./deployment.tsx"),
    (file) => file.DeploymentPanel
  ),
  Domain: lazily(
    () => import("./domain.tsx"),
    (file) => file.DomainPanel
  ),
  EnvVariables: lazily(
    () => import("./variables.tsx"),
    (file) => file.VariablesPanel
  ),
  Execution: lazily(
    () => import("./execution.tsx"),
    (file) => file.ExecutionPanel
  ),
  Preview: lazily(
    () => import("./preview.tsx"),
    (file) => file.PreviewPanel
  ),
  Queue: lazily(
    () => import("./queue.tsx"),
    (file) => file.QueuePanel
  )
}

const inOrganization: Readonly<Record<string, ComponentType<OrganizationServiceProps>>> = {
  BackupDestination: lazily(
    () => import("./destination.tsx"),
    (file) => file.DestinationPanel
  ),
  GitSource: lazily(
    () => import("./git-source.tsx"),
    (file) => file.GitSourcePanel
  )
}

const Measured = lazily(
  () => import("./measurements.tsx"),
  (file) => file.Measurements
)
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
