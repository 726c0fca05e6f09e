/** Parts of operations that show what containers print. */
import * as Schema from "effect/Schema"
import { page, pageQuery, Timestamp } from "#src/api/definition/fields.ts"

export const logEntryFields = {
  id: Schema.String.annotate({ description: "Where it begins; where a stream goes on after it" }),
  stream: Schema.Literals(["stdout", "stderr", "system"]).annotate({
    description: "`system`: what the platform has to say"
  }),
  at: Timestamp,
  text: Schema.String.annotate({
    description:
      "As it was printed, with the end of the line if it has one; bytes that are no UTF-8 are replaced. Long lines come in parts"
  })
}
export const LogEntry = Schema.Struct(logEntryFields).annotate({ identifier: "LogEntry" })
export const LogPage = page(LogEntry)

export const logHeaders = {
  "last-event-id": Schema.optionalKey(
    Schema.String.check(Schema.isMaxLength(64)).annotate({
      description: "With `follow`: goes on after this entry"
    })
  )
}

/** Characters of what is looked for. */
const longestSearch = 200

/** `last`: what comes after the entries when it is followed to its end. */
export const logQuery = (last: string) => ({
  limit: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1000 })).annotate({
      description: "Default 100"
    })
  ),
  cursor: pageQuery.cursor,
  search: Schema.optionalKey(
    Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(longestSearch)).annotate({
      description:
        "Only entries with this in their text, in any case of letters. A page may then be empty and not the last one"
    })
  ),
  follow: Schema.optionalKey(
    Schema.Boolean.annotate({
      description: `Server-sent events (\`text/event-stream\`) instead: an \`entry\` for each, also those to come, then \`end\` with ${last}`
    })
  )
})

export const logStream = { content: { "text/event-stream": { schema: { type: "string" } } } }
