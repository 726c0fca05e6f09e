/** Running a command: how it ends, and what it says of mistakes. */
import { Console as NodeConsole } from "node:console"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as CliConfig from "effect/cli/CliConfig"
import * as CliOutput from "effect/cli/CliOutput"
import * as Command from "effect/cli/Command"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { loadCommandsFor, stopping } from "./commands.ts"
import { CliFailure, exitCodes } from "./failure.ts"
import { Invocation, withFolderSettings } from "./invocation.ts"
import { paint, say, sayText } from "./output.ts"

const isShowHelp = (error: unknown): error is { readonly errors: ReadonlyArray<unknown> } =>
  typeof error === "object" &&
  error !== null &&
  "_tag" in error &&
  error._tag === "ShowHelp" &&
  "errors" in error

/** Says why, to people, and chooses the exit code. */
const end = (args: ReadonlyArray<string>) =>
  Effect.fnUntraced(function* (cause: Cause.Cause<unknown>) {
    if (Cause.hasInterruptsOnly(cause)) return stopping.code
    const error: unknown = Cause.squash(cause)
    if (error instanceof CliFailure) {
      if (error.message !== "") yield* sayText(paint("red", error.message))
      return error.exitCode
    }
    // Wrong use has been told already. To ask for nothing in particular shows the help, and is no mistake.
    if (isShowHelp(error)) {
      if (error.errors.length === 0) return 0
      // There 2 says that there are changes, and nothing else.
      return args.includes("--detailed-exitcode") ? exitCodes.failure : exitCodes.usage
    }
    yield* sayText(
      `svc failed unexpectedly: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`
    )
    return exitCodes.failure
  })

/** What is wrong goes to stderr in few lines; the whole help would bury it. */
const presenter = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? say(
          ...event.errors.flatMap(({ message }) => message.split("\n").map((line) => paint("red", line))),
          `See ${event.commandPath.join(" ")} --help`
        )
      : CliOutput.defaultPresenter.present(event)
})
const config = CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version] })

/** Runs the command that the arguments name, with what {@link Invocation} says, and answers its exit code. */
export const runCommand = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
  const invocation = yield* withFolderSettings
  const { stdout, stderr } = invocation
  return yield* loadCommandsFor(args).pipe(
    Effect.flatMap((svc) => Command.runWith(svc, { version: "0.1.0" })(args)),
    Effect.provide(Layer.mergeAll(NodeServices.layer, presenter, config)),
    Effect.as(0),
    Effect.catchCause(end(args)),
    // Help is printed by the library.
    Effect.provideService(Console.Console, new NodeConsole({ stdout, stderr })),
    Effect.provideService(Invocation, invocation)
  )
})
