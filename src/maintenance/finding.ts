/** What maintenance finds, and the operation that would mend it. */
import * as Schema from "effect/Schema"
import { MaintenanceCategory } from "#schemas/maintenance.ts"

export const Severity = Schema.Literals(["info", "warning", "critical"])
export type Severity = typeof Severity.Type

const Texts = Schema.Record(Schema.String, Schema.String)

/** An operation of the API with everything that a call of it takes, but the organization. */
export const Remedy = Schema.Struct({
  operationId: Schema.String,
  risk: Schema.Literals(["read", "write", "destructive", "dangerous"]).annotate({
    description: "Risk of the operation"
  }),
  parameters: Schema.Struct({
    path: Texts,
    query: Schema.optionalKey(Texts),
    body: Schema.optionalKey(Schema.Json)
  }),
  command: Schema.String.annotate({ description: "The same on the command line" })
}).annotate({ identifier: "MaintenanceRemedy" })
export type Remedy = typeof Remedy.Type

export const Subject = Schema.Struct({
  kind: Schema.String,
  id: Schema.String,
  name: Schema.String,
  environment: Schema.NullOr(Schema.String)
}).annotate({ identifier: "MaintenanceSubject" })

export const Evidence = Schema.Record(
  Schema.String,
  Schema.Union([Schema.String, Schema.Finite, Schema.Boolean, Schema.Null])
).annotate({ description: "Numbers and times by which it was found" })

export const Finding = Schema.Struct({
  /** The same in every run that finds it: the check and the resource. */
  key: Schema.String,
  category: MaintenanceCategory,
  severity: Severity,
  subject: Subject,
  /** A sentence: what is so. */
  summary: Schema.String,
  /** A sentence: what may come of it. */
  risk: Schema.String,
  evidence: Evidence,
  remedy: Schema.NullOr(Remedy),
  /** What would make it another finding when it changes: a dismissal holds while this and the severity stay the same. */
  basis: Schema.String
})
export type Finding = typeof Finding.Type
