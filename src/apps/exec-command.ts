/** `svc exec`: a program in an instance of an app. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { ProblemBody } from "#src/api/definition/problem.ts"
import { Client } from "#src/cli/client.ts"
import { CliFailure, exitCodes, failure, fromProblem } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { json } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { onTerminal } from "#src/executions/follow-command.ts"
import { ExecLine, type ExecRequest, execSeconds } from "./exec-request.ts"

const decodeLine = Schema.decodeUnknownEffect(Schema.fromJsonString(ExecLine))
const decodeProblem = Schema.decodeUnknownOption(ProblemBody)
/** Bytes of standard input, so that they fit in a request. */
const mostInput = 700_000

const readInput = Effect.flatMap(Invocation, ({ stdin }) =>
  Effect.tryPromise({
    try: async () => {
      const chunks: Array<Buffer> = []
      let bytes = 0
      for await (const chunk of stdin) {
        const piece = Buffer.from(chunk)
        bytes += piece.length
        if (bytes > mostInput)
          throw failure(`Standard input has more than ${mostInput} bytes`, exitCodes.usage)
        chunks.push(piece)
      }
      return Buffer.concat(chunks).toString("base64")
    },
    catch: (cause) => (cause instanceof CliFailure ? cause : failure("Standard input cannot be read"))
  })
)

/** The lines of the answer, as they come. The program is ended when nobody reads them any more. */
const send = (path: string, request: ExecRequest): Stream.Stream<ExecLine, CliFailure, Client> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const { login, sendOnce } = yield* Client
      const lost = (cause: unknown) =>
        failure(`${login.apiUrl} broke off: ${cause instanceof Error ? cause.message : String(cause)}`)
      const stop = yield* Effect.acquireRelease(
        Effect.sync(() => new AbortController()),
        (controller) => Effect.sync(() => controller.abort())
      )
      const response = yield* Effect.tryPromise({
        try: () =>
          sendOnce(`${login.apiUrl}${path}`, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify(request),
            signal: stop.signal
          }),
        catch: lost
      })
      if (!response.ok || response.body === null) {
        const body = decodeProblem(yield* Effect.promise(() => response.json().catch(() => undefined)))
        return yield* Option.isSome(body) ? fromProblem(body.value) : lost(`status ${response.status}`)
      }
      const { body } = response
      return Stream.fromReadableStream({ evaluate: () => body, onError: lost }).pipe(
        Stream.decodeText,
        Stream.splitLines,
        Stream.mapEffect((line) => Effect.mapError(decodeLine(line), lost))
      )
    })
  )

export const exec = commandIn(inEnvironment)(
  "exec",
  {
    input: Flag.Boolean("stdin").pipe(
      Flag.withAlias("i"),
      Flag.withDescription("Hands on standard input, all of it at once"),
      Flag.withDefault(false)
    ),
    instance: Flag.String("instance").pipe(
      Flag.withDescription("Id of an instance; the newest that takes requests otherwise"),
      Flag.optional
    ),
    timeout: Flag.Int("timeout").pipe(
      Flag.withDescription(
        `Seconds that the program may take (default ${execSeconds.usual}, at most ${execSeconds.most})`
      ),
      Flag.withDefault(execSeconds.usual)
    ),
    command: Argument.String("command").pipe(
      Argument.withDescription("Program and arguments, after --"),
      Argument.variadic({ min: 1 })
    )
  },
  ({ where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { org } = yield* Client
      const { stdout, stderr } = yield* Invocation
      const [program = "", ...rest] = flags.command
      const part = encodeURIComponent
      const path = `/v1/orgs/${part(org)}/projects/${part(where.project)}/app/exec?environment=${part(where.environment)}`
      const printed = { stdout: "", stderr: "" }
      let last: Exclude<ExecLine, { readonly type: "output" | "alive" }> | undefined
      const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
      yield* send(path, {
        command: [program, ...rest],
        timeoutSeconds: flags.timeout,
        ...(Option.isSome(flags.instance) ? { instance: flags.instance.value } : {}),
        ...(flags.input ? { stdin: yield* readInput } : {})
      }).pipe(
        Stream.runForEach((line) =>
          Effect.sync(() => {
            if (line.type === "exit" || line.type === "failed") last = line
            if (line.type !== "output") return
            const bytes = Buffer.from(line.data, "base64")
            const text = decoders[line.stream].decode(bytes, { stream: true })
            const target = line.stream === "stdout" ? stdout : stderr
            if (asJson) printed[line.stream] += text
            else target.write(target.isTTY === true ? onTerminal(text) : bytes)
          })
        )
      )
      if (last === undefined)
        return yield* failure("The control plane broke off; what became of the program is not known")
      if (last.type === "failed")
        return yield* failure(last.message, last.code === "timed_out" ? exitCodes.timeout : exitCodes.failure)
      if (asJson) yield* json({ exitCode: last.code, ...printed })
      if (last.code !== 0) return yield* failure("", last.code)
    })
).pipe(
  Command.withDescription(
    "Run a program in an instance of an app, beside it, with its variables; exits as the program does"
  ),
  Command.withExamples([
    { command: "svc exec shop -- node scripts/report.js", description: "Program and arguments after --" },
    { command: "svc exec shop -i -- sh < fix.sh", description: "A script that the app's shell reads" }
  ])
)
