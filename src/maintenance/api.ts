/** Looking after a project on a schedule: settings, runs, findings. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { lineOf } from "#schemas/display-text.ts"
import {
  AutoRemediation,
  MaintenanceCategory,
  MaintenanceInput,
  MaintenanceSchedule,
  maintenanceCategories
} from "#schemas/maintenance.ts"
import { EnvironmentSlug } from "#schemas/names.ts"
import {
  Deleted,
  Id,
  idempotencyKey,
  ifMatch,
  page,
  pageQuery,
  projectParams,
  ServiceStatus,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { Evidence, Remedy, Severity, Subject } from "./finding.ts"

export const MaintenanceView = Schema.Struct({
  enabled: Schema.Boolean,
  schedule: MaintenanceSchedule,
  categories: Schema.Array(MaintenanceCategory).annotate({ description: "Empty: everything" }),
  environments: Schema.Array(EnvironmentSlug).annotate({ description: "Empty: all of them" }),
  autoRemediation: Schema.toType(AutoRemediation),
  status: Schema.NullOr(ServiceStatus).annotate({
    description: "null: it was never set up, and nothing is looked at"
  }),
  nextRunAt: Schema.NullOr(Timestamp).annotate({ description: "null: it does not run by itself" }),
  openFindings: Schema.Int.annotate({ description: "How many are neither resolved nor dismissed" }),
  managedBy: Schema.NullOr(Schema.Literals(["api", "manifest"]))
}).annotate({ identifier: "Maintenance" })

const ActionView = Schema.Struct({
  id: Id,
  findingId: Id,
  operationId: Schema.String,
  command: Schema.String,
  status: Schema.Literals(["planned", "running", "succeeded", "failed", "refused"]).annotate({
    description: "`refused`: it was not called, because the project did not allow it any more"
  }),
  answered: Schema.NullOr(Schema.Int).annotate({
    description: "Status code that the operation answered last"
  }),
  reason: Schema.NullOr(Schema.String).annotate({ description: "Why it failed, waits or was refused" }),
  createdAt: Timestamp,
  finishedAt: Schema.NullOr(Timestamp)
}).annotate({ identifier: "MaintenanceAction" })

const CategoryView = Schema.Struct({
  category: MaintenanceCategory,
  findings: Schema.Int,
  problem: Schema.NullOr(Schema.String).annotate({ description: "Why it could not be looked at" })
})

export const MaintenanceRunView = Schema.Struct({
  id: Id,
  trigger: Schema.Literals(["schedule", "manual"]),
  status: Schema.Literals(["pending", "running", "succeeded", "failed"]),
  createdAt: Timestamp,
  startedAt: Schema.NullOr(Timestamp),
  finishedAt: Schema.NullOr(Timestamp),
  categories: Schema.Array(CategoryView).check(Schema.isMaxLength(maintenanceCategories.length)),
  opened: Schema.Int.annotate({ description: "Findings that were not open before" }),
  resolved: Schema.Int.annotate({ description: "Findings that are no more" }),
  actions: Schema.Array(ActionView).annotate({ description: "Operations that it decided on" }),
  reason: Schema.NullOr(Schema.String).annotate({ description: "Why it failed" })
}).annotate({ identifier: "MaintenanceRun" })
export const MaintenanceRunPage = page(MaintenanceRunView)

const FindingState = Schema.Literals(["open", "dismissed", "resolved"])
export const MaintenanceFindingView = Schema.Struct({
  id: Id.annotate({ description: "The same in every run that finds it" }),
  category: MaintenanceCategory,
  severity: Severity,
  state: FindingState,
  subject: Subject,
  summary: Schema.String.annotate({ description: "What is so" }),
  risk: Schema.String.annotate({ description: "What may come of it" }),
  evidence: Evidence,
  remedy: Schema.NullOr(Remedy).annotate({
    description: "What would mend it; null: no single operation does"
  }),
  firstSeenAt: Timestamp,
  lastSeenAt: Timestamp,
  resolvedAt: Schema.NullOr(Timestamp),
  dismissedAt: Schema.NullOr(Timestamp),
  dismissedBy: Schema.NullOr(Schema.String),
  dismissedReason: Schema.NullOr(Schema.String)
}).annotate({ identifier: "MaintenanceFinding" })
export const MaintenanceFindingPage = page(MaintenanceFindingView)

const base = "/v1/orgs/:orgId/projects/:projectId/maintenance"
const runs = `${base}/runs` as const
const findings = `${base}/findings` as const
const finding = `${findings}/:findingId` as const
const params = projectParams
const findingParams = { ...params, findingId: Id }
const target = { type: "project" } as const
const tagged = { alsoAnswers: { headers: ["etag"] }, target }

export const Maintenance = group(
  "maintenance",
  "Looking after a project on a schedule: what it found, and what it may do about it by itself."
).add(
  HttpApiEndpoint.get("get", base, { params, success: MaintenanceView, error: problems() }).annotateMerge(
    operation(
      "maintenance.get",
      "read",
      "member",
      "How a project is looked after; with an ETag once anything was said",
      tagged
    )
  ),
  HttpApiEndpoint.put("set", base, {
    params,
    payload: Schema.Struct(MaintenanceInput.fields),
    success: MaintenanceView,
    error: bodyProblems(412)
  }).annotateMerge(
    operation("maintenance.set", "write", "admin", "Say how a project is looked after", {
      sensitive: true,
      conditional: true,
      ...tagged
    })
  ),
  HttpApiEndpoint.delete("delete", base, {
    params,
    headers: ifMatch,
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation(
      "maintenance.delete",
      "destructive",
      "admin",
      "Look after a project no more, and forget what was found",
      { target }
    )
  ),
  HttpApiEndpoint.get("listRuns", runs, {
    params,
    query: pageQuery,
    success: MaintenanceRunPage,
    error: problems()
  }).annotateMerge(
    operation("maintenance.listRuns", "read", "member", "List runs of maintenance, newest first", { target })
  ),
  HttpApiEndpoint.post("run", runs, {
    params,
    headers: idempotencyKey,
    success: MaintenanceRunView.pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(
    operation(
      "maintenance.run",
      "write",
      "admin",
      "Look at a project now; answers the run that is under way, if there is one",
      { target }
    )
  ),
  HttpApiEndpoint.get("getRun", `${runs}/:runId`, {
    params: { ...params, runId: Id },
    success: MaintenanceRunView,
    error: problems()
  }).annotateMerge(
    operation("maintenance.getRun", "read", "member", "Read a run of maintenance", { target })
  ),
  HttpApiEndpoint.get("listFindings", findings, {
    params,
    query: {
      ...pageQuery,
      state: Schema.optionalKey(FindingState),
      category: Schema.optionalKey(MaintenanceCategory)
    },
    success: MaintenanceFindingPage,
    error: problems()
  }).annotateMerge(
    operation("maintenance.listFindings", "read", "member", "List what maintenance found, newest first", {
      target
    })
  ),
  HttpApiEndpoint.post("dismiss", `${finding}/dismiss`, {
    params: findingParams,
    headers: idempotencyKey,
    payload: Schema.Struct({ reason: lineOf(500) }),
    success: MaintenanceFindingView,
    error: bodyProblems()
  }).annotateMerge(
    operation("maintenance.dismiss", "write", "admin", "Leave a finding as it is, until it changes", {
      target
    })
  ),
  HttpApiEndpoint.post("reopen", `${finding}/reopen`, {
    params: findingParams,
    headers: idempotencyKey,
    success: MaintenanceFindingView,
    error: problems()
  }).annotateMerge(
    operation("maintenance.reopen", "write", "admin", "Take the dismissal of a finding back", { target })
  )
)
