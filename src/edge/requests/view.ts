/** Requests to an environment as they are shown. */
import * as Schema from "effect/Schema"
import { page, pageQuery, Timestamp } from "#src/api/definition/fields.ts"
import type { RequestRecord } from "./RequestRecords.ts"

const outcomes = [
  "completed",
  "client_closed",
  "client_timeout",
  "app_unreachable",
  "app_closed",
  "app_timeout",
  "refused",
  "edge_failed"
] as const
type Outcome = (typeof outcomes)[number]

export const statusClasses = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"] as const

export const RequestView = Schema.Struct({
  id: Schema.String.annotate({ description: "Within its environment; later requests have larger numbers" }),
  at: Timestamp.annotate({ description: "When it came" }),
  method: Schema.String,
  host: Schema.String,
  path: Schema.String.annotate({
    description: "Without query, and at most 1024 bytes of it; control characters as their escapes"
  }),
  status: Schema.NullOr(Schema.Int).annotate({ description: "null: nobody answered" }),
  durationMs: Schema.Int.annotate({ description: "From its first byte to the last one of its answer" }),
  bytesIn: Schema.Int.annotate({ description: "Header fields included" }),
  bytesOut: Schema.Int.annotate({ description: "Header fields included" }),
  outcome: Schema.Literals(outcomes).annotate({
    description: "How it ended: `completed`, or who or what ended it before; `refused` is what no app sees"
  })
}).annotate({ identifier: "EnvironmentRequest" })
export const RequestPage = page(RequestView)

export const requestQuery = {
  ...pageQuery,
  status: Schema.optionalKey(
    Schema.Literals(statusClasses).annotate({ description: "Class of the status; `none`: nobody answered" })
  ),
  path: Schema.optionalKey(
    Schema.String.check(Schema.isMaxLength(1024)).annotate({ description: "What the path begins with" })
  ),
  since: Schema.optionalKey(
    Schema.String.annotate({ format: "date-time", description: "Came at this time or later" }).pipe(
      Schema.decodeTo(Schema.DateTimeUtcFromString)
    )
  )
}

export const requestView = (record: RequestRecord): (typeof RequestView)["Encoded"] => ({
  id: record.number,
  at: record.at.toISOString(),
  method: record.method,
  host: record.host,
  path: record.path,
  status: record.status,
  durationMs: record.durationMs,
  bytesIn: record.bytesIn,
  bytesOut: record.bytesOut,
  outcome: outcomeOf(record.termination)
})

/** First digit of the statuses of a class; 0: nobody answered. */
export const digitOf = (statusClass: (typeof statusClasses)[number]): number =>
  statusClass === "none" ? 0 : Number(statusClass[0])

/** HAProxy's first letter says what ended the session, the second one in which state (Configuration Manual, 8.5). */
const outcomeOf = (termination: string): Outcome => {
  const [by, state] = termination
  switch (by) {
    case "-":
    // Answered by the edge, as a rule of its own says.
    case "L":
      return "completed"
    case "C":
      return "client_closed"
    case "c":
      return "client_timeout"
    case "S":
      return state === "C" ? "app_unreachable" : "app_closed"
    case "s":
      return state === "C" ? "app_unreachable" : "app_timeout"
    case "P":
      return "refused"
    default:
      return "edge_failed"
  }
}
