/** The command line as a process: its arguments, its signals and its exit code. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { stopping } from "./commands.ts"
import { exitCodes } from "./failure.ts"
import { runCommand } from "./run-command.ts"

// Who reads only the beginning (svc events ... | head) is not told of an error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  process.exit(error.code === "EPIPE" ? 0 : exitCodes.failure)
})

runCommand(process.argv.slice(2)).pipe(
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
