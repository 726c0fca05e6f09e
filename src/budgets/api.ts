/** What the things of a project cost, by day. What it may spend is an operation of projects. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { Id, page, pageQuery, projectParams } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"

const isDay = (day: string): boolean => {
  const time = Date.parse(`${day}T00:00:00Z`)
  return day >= "2000" && !Number.isNaN(time) && new Date(time).toISOString().startsWith(day)
}
const Day = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d{2}-\d{2}$/u, { expected: "a day such as 2026-11-22" }),
  Schema.makeFilter((day: string) => (isDay(day) ? undefined : "is no day of the calendar, or long ago"))
)

/** What of a thing costs something. */
export const usageItems = ["server", "instances", "disk", "backups", "calls", "executions"] as const
export const UsageEntry = Schema.Struct({
  date: Schema.String.annotate({ format: "date", description: "A day in UTC" }),
  resourceId: Schema.NullOr(Id).annotate({
    description: "null: executions, which are many and stand together"
  }),
  kind: Schema.String,
  name: Schema.String,
  environment: Schema.NullOr(Schema.String),
  item: Schema.Literals(usageItems).annotate({
    description:
      "What of it: its servers or an app's instances for as long as they run, what they and its backups take of disks, calls of models, or executions that ended"
  }),
  usd: Schema.Finite
}).annotate({ identifier: "UsageEntry" })
export const UsagePage = page(UsageEntry)

export const Budgets = group("budgets", "What the things of a project cost.").add(
  HttpApiEndpoint.get("usage", "/v1/orgs/:orgId/projects/:projectId/budget/usage", {
    params: projectParams,
    query: {
      from: Schema.optionalKey(
        Day.annotate({ description: "First day (UTC); default: the first of the month of `to`" })
      ),
      to: Schema.optionalKey(Day.annotate({ description: "Last day (UTC); default: today" })),
      ...pageQuery
    },
    error: problems(),
    success: UsagePage
  }).annotateMerge(
    operation(
      "budgets.usage",
      "read",
      "member",
      "What things cost by day, the newest first; of the last 13 months",
      { target: { type: "project" } }
    )
  )
)
