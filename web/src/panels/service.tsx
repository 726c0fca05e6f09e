/** The daily work of a service, by the kind of the resource. Kinds that have none of their own show nothing here. */
import type { Resource } from "../live/resources.ts"
import { AlertPanel } from "./alert.tsx"
import { AppPanel } from "./app.tsx"
import { CachePanel, DatabasePanel } from "./credentials.tsx"
import { CronPanel } from "./cron.tsx"
import { DeploymentPanel } from "./deployment.tsx"
import { ExecutionPanel } from "./execution.tsx"
import { QueuePanel } from "./queue.tsx"
import { VariablesPanel } from "./variables.tsx"

export interface ServiceProps {
  readonly resource: Resource
  readonly project: string
}

const Service = ({ resource }: { readonly resource: Resource }) => {
  const { project, kind } = resource
  if (project === null) return null
  const props = { resource, project }
  if (kind === "Queue") return <QueuePanel {...props} />
  if (kind === "Cron") return <CronPanel {...props} />
  if (kind === "Execution") return <ExecutionPanel {...props} />
  if (kind === "Cache") return <CachePanel {...props} />
  if (kind === "Database") return <DatabasePanel {...props} />
  if (kind === "Alert") return <AlertPanel {...props} />
  if (kind === "App") return <AppPanel {...props} />
  if (kind === "Deployment") return <DeploymentPanel {...props} />
  if (kind === "EnvVariables") return <VariablesPanel {...props} />
  return null
}
export default Service
