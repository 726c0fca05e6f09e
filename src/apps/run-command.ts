/** `svc run`: a command in a container of its own, made of the image of the app that answers. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { json, say } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { follow, outcome } from "#src/executions/follow-command.ts"

/** Seconds that the command waits beyond the time of the execution: for its turn, its start and its clean-up. */
const aroundSeconds = 900

export const run = commandIn(inEnvironment)(
  "run",
  {
    timeout: Flag.Int("timeout").pipe(
      Flag.withDescription("Seconds that the command may take (default 3600)"),
      Flag.withDefault(3_600)
    ),
    command: Argument.String("command").pipe(
      Argument.withDescription("Program and arguments, after --"),
      Argument.variadic({ min: 1 })
    )
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { project } = where
      const app = yield* call(client.asMember.apps.get(yield* at))
      if (app.deploymentId === null)
        return yield* failure(`No deployment of ${project}/${where.environment} answers`, exitCodes.conflict)
      const [program = "", ...rest] = flags.command
      const create = call(
        client.asMember.executions.create({
          params: { orgId: client.org, projectId: project },
          headers: {},
          payload: {
            deploymentId: app.deploymentId,
            command: [program, ...rest],
            region: app.region,
            timeoutSeconds: flags.timeout
          }
        })
      )
      // What was made is cancelled with the command, also when that ends before the answer is there.
      const done = yield* Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(create, ({ id }) =>
          restore(follow(project, id, flags.timeout + aroundSeconds, asJson)).pipe(
            Effect.onInterrupt(() => cancel(project, id))
          )
        )
      )
      if (asJson) yield* json(done)
      if (done.status === "succeeded") return
      if (done.status === "failed" && done.exitCode !== null && done.errorCode === null)
        return yield* failure("", done.exitCode)
      return yield* failure(
        `${done.id} ${outcome(done)}`,
        done.status === "timed_out" ? exitCodes.timeout : exitCodes.failure
      )
    })
).pipe(
  Command.withDescription(
    "Run a command in a new container of the app's image, with its variables and services; exits as it does"
  ),
  Command.withExamples([
    { command: "svc run shop -- node scripts/migrate.js", description: "Ctrl-C cancels it" }
  ])
)

const cancel = (projectId: string, executionId: string) =>
  Effect.gen(function* () {
    const { asMember, org } = yield* Client
    yield* call(asMember.executions.cancel({ params: { orgId: org, projectId, executionId }, headers: {} }))
    yield* say(`${executionId} is cancelled`)
  }).pipe(Effect.ignore)
