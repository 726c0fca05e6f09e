/** How runs and findings look in answers. */
import type { MaintenanceCategory } from "#schemas/maintenance.ts"
import { maintenanceCategories } from "#schemas/maintenance.ts"
import type { ActionRecord } from "./Actions.ts"
import type { FindingRecord } from "./Findings.ts"
import type { CategoryResult, RunRecord } from "./Runs.ts"

const actionView = ({ remedy, ...action }: ActionRecord) => ({
  id: action.id,
  findingId: action.findingId,
  operationId: remedy.operationId,
  command: remedy.command,
  status: action.status,
  answered: action.answered,
  reason: action.reason,
  createdAt: action.createdAt.toISOString(),
  finishedAt: action.finishedAt?.toISOString() ?? null
})

const categoryView =
  (results: RunRecord["categories"]) =>
  (category: MaintenanceCategory): ReadonlyArray<CategoryResult & { category: MaintenanceCategory }> => {
    const result = results[category]
    return result === undefined ? [] : [{ category, ...result }]
  }

export const runView = (run: RunRecord, actions: ReadonlyArray<ActionRecord>) => ({
  id: run.id,
  trigger: run.trigger,
  status: run.status,
  createdAt: run.createdAt.toISOString(),
  startedAt: run.startedAt?.toISOString() ?? null,
  finishedAt: run.finishedAt?.toISOString() ?? null,
  categories: maintenanceCategories.flatMap(categoryView(run.categories)),
  opened: run.opened,
  resolved: run.resolved,
  actions: actions.filter(({ runId }) => runId === run.id).map(actionView),
  reason: run.reason
})

export const findingView = (finding: FindingRecord) => ({
  id: finding.id,
  category: finding.category,
  severity: finding.severity,
  state: finding.state,
  subject: finding.subject,
  summary: finding.summary,
  risk: finding.risk,
  evidence: finding.evidence,
  remedy: finding.remedy,
  firstSeenAt: finding.firstSeenAt.toISOString(),
  lastSeenAt: finding.lastSeenAt.toISOString(),
  resolvedAt: finding.resolvedAt?.toISOString() ?? null,
  dismissedAt: finding.dismissedAt?.toISOString() ?? null,
  dismissedBy: finding.dismissedBy,
  dismissedReason: finding.dismissedReason
})
