/**
 * What lists of kinds are called, in the order of daily work. The schemas of the kinds stay out of the first screen; a test
 * compares this list with them.
 */
export const kindNames: ReadonlyArray<readonly [kind: string, name: string]> = [
  ["App", "Apps"],
  ["Deployment", "Deployments"],
  ["Preview", "Previews"],
  ["GitSource", "Git sources"],
  ["Database", "Databases"],
  ["DatabaseBranch", "Branches"],
  ["Cache", "Caches"],
  ["Queue", "Queues"],
  ["Cron", "Cron jobs"],
  ["Execution", "Executions"],
  ["EnvVariables", "Variables"],
  ["Domain", "Domains"],
  ["AccessPolicy", "Access policies"],
  ["AiGateway", "AI gateways"],
  ["CustomerPayments", "Payments"],
  ["Budget", "Budgets"],
  ["Alert", "Alerts"],
  ["Maintenance", "Maintenance"],
  ["BackupDestination", "Backup destinations"]
]
