/** `svc api`: any operation, by its method and path. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { authorized } from "#src/cli/bearer.ts"
import { CliFailure, codeOf, exitCodes, failure } from "#src/cli/failure.ts"
import { connection, loginOf, readStdin } from "#src/cli/flags.ts"
import { readTextFile } from "#src/cli/invocation.ts"
import { memberCredential, ownerCredential } from "#src/cli/login.ts"
import { exact } from "#src/cli/output.ts"
import { resending } from "#src/cli/resend.ts"

const readBody = (data: string) => {
  if (data === "-") return readStdin
  if (!data.startsWith("@")) return Effect.succeed(data)
  return Effect.mapError(readTextFile(data.slice(1)), (cause) =>
    failure(`Cannot read ${data.slice(1)}: ${cause}`, exitCodes.usage)
  )
}

export const api = Command.make(
  "api",
  {
    ...connection,
    method: Argument.Literals("method", ["GET", "POST", "PUT", "PATCH", "DELETE"]),
    path: Argument.String("path").pipe(
      Argument.withDescription("Path such as /v1/me; {org} stands for the organization")
    ),
    data: Flag.String("data").pipe(
      Flag.withDescription("Body in JSON, @file, or - for standard input"),
      Flag.optional
    ),
    owner: Flag.Boolean("owner").pipe(
      Flag.withDescription("Use the session instead of what acts in the organization"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    Effect.gen(function* () {
      const login = yield* loginOf(flags)
      const credential = flags.owner ? ownerCredential(login) : memberCredential(login)
      const send = yield* authorized(resending(fetch), credential)
      const data = Option.getOrUndefined(flags.data)
      const body = data === undefined ? undefined : yield* readBody(data)
      if (!flags.path.startsWith("/")) return yield* failure("A path begins with /", exitCodes.usage)
      const path = flags.path.replaceAll("{org}", encodeURIComponent(login.organization))
      const answer = yield* Effect.tryPromise({
        try: async (signal) => {
          const response = await send(`${login.apiUrl}${path}`, {
            method: flags.method,
            signal: AbortSignal.any([signal, AbortSignal.timeout(120_000)]),
            ...(body === undefined ? {} : { body, headers: { "content-type": "application/json" } })
          })
          return { status: response.status, text: await response.text() }
        },
        catch: (cause) =>
          cause instanceof CliFailure
            ? cause
            : failure(
                `${login.apiUrl} cannot be reached: ${cause instanceof Error ? cause.message : String(cause)}`
              )
      })
      if (answer.text !== "") yield* exact(answer.text.replace(/\n$/, ""))
      if (answer.status === 401 && credential === undefined) return yield* failure(login.missing, codeOf(401))
      const code = codeOf(answer.status)
      if (code !== 0) return yield* failure("", code)
    })
).pipe(Command.withDescription("Call any operation and print its answer"))
