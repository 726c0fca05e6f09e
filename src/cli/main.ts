/** The command line, run: how it ends, and what it says of mistakes. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as Cause from "effect/Cause"
import * as CliConfig from "effect/cli/CliConfig"
import * as CliOutput from "effect/cli/CliOutput"
import * as Command from "effect/cli/Command"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import { loadCommands, stopping } from "./commands.ts"
import { CliFailure, exitCodes } from "./failure.ts"
import { paint, say, shownText } from "./output.ts"
import { loadFolderSettings } from "./settings.ts"
import { visible } from "./visible.ts"

const isShowHelp = (error: unknown): error is { readonly errors: ReadonlyArray<unknown> } =>
  typeof error === "object" &&
  error !== null &&
  "_tag" in error &&
  error._tag === "ShowHelp" &&
  "errors" in error

/** Says why, to people, and chooses the exit code. */
const end = (cause: Cause.Cause<unknown>) =>
  Effect.sync(() => {
    if (Cause.hasInterruptsOnly(cause)) return stopping.code
    const error: unknown = Cause.squash(cause)
    if (error instanceof CliFailure) {
      if (error.message !== "") process.stderr.write(`${shownText(paint("red", error.message))}\n`)
      return error.exitCode
    }
    // Wrong use has been told already. To ask for nothing in particular shows the help, and is no mistake.
    if (isShowHelp(error)) {
      if (error.errors.length === 0) return 0
      // There 2 says that there are changes, and nothing else.
      return process.argv.includes("--detailed-exitcode") ? exitCodes.failure : exitCodes.usage
    }
    process.stderr.write(
      `svc failed unexpectedly: ${visible(error instanceof Error ? (error.stack ?? error.message) : String(error))}\n`
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

loadFolderSettings()

// Who reads only the beginning (svc events ... | head) is not told of an error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  process.exit(error.code === "EPIPE" ? 0 : exitCodes.failure)
})

loadCommands.pipe(
  Effect.flatMap(Command.run({ version: "0.1.0" })),
  Effect.provide(Layer.mergeAll(NodeServices.layer, presenter, config)),
  Effect.as(0),
  Effect.catchCause(end),
  Effect.tap((code) =>
    Effect.sync(() => {
      process.exitCode = code
    })
  ),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? Number(process.exitCode ?? 0) : stopping.code)
  })
)
