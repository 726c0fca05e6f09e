/** Running a program in an instance of an app: what is asked for, and the lines of the answer. */
import * as Schema from "effect/Schema"
import { Id } from "#src/api/definition/fields.ts"

/** Seconds that a program may take unless the request says otherwise, and at most. */
export const execSeconds = { usual: 300, most: 3_600 } as const

const part = Schema.String.check(
  Schema.isMaxLength(32_768),
  // What ends an argument for the kernel (execve(2)).
  Schema.isPattern(/^[^\0]*$/u, { expected: "no NUL character" })
)

export const ExecRequest = Schema.Struct({
  command: Schema.NonEmptyArray(part)
    .check(Schema.isMaxLength(256))
    .annotate({ description: "Program and arguments; no shell reads them" }),
  instance: Schema.optionalKey(
    Id.annotate({ description: "Left out: the newest one that takes requests; a sleeping app is woken" })
  ),
  stdin: Schema.optionalKey(
    Schema.String.check(
      Schema.isMaxLength(1_000_000),
      Schema.isPattern(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/u, {
        expected: "base64 (RFC 4648, section 4)"
      })
    ).annotate({ description: "What the program reads, in base64" })
  ),
  timeoutSeconds: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: execSeconds.most })).annotate({
      description: `The program is ended after so many; ${execSeconds.usual} unless said otherwise`
    })
  )
}).annotate({ identifier: "ExecRequest" })
export type ExecRequest = typeof ExecRequest.Type

/** A line of the answer. `exit` and `failed` are the last one. */
export const ExecLine = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("output"),
    stream: Schema.Literals(["stdout", "stderr"]),
    data: Schema.String.annotate({ description: "In base64" })
  }),
  Schema.Struct({ type: Schema.Literal("alive") }).annotate({
    description: "Nothing was printed for a while"
  }),
  Schema.Struct({ type: Schema.Literal("exit"), code: Schema.Int }),
  Schema.Struct({
    type: Schema.Literal("failed"),
    code: Schema.Literals(["timed_out", "too_much_output", "access_ended", "instance_lost"]),
    message: Schema.String
  })
]).annotate({ identifier: "ExecLine" })
export type ExecLine = typeof ExecLine.Type
