/** The command line, composed. What a command needs is loaded when it runs: `svc --help` must be quick. */
import { existsSync } from "node:fs"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as Cause from "effect/Cause"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import { api, login, whoami } from "./access-commands.ts"
import { CliFailure, exitCodes, failure } from "./failure.ts"
import { yes } from "./flags.ts"
import { apply, exportCommand, plan } from "./manifest-commands.ts"
import { out, paint, table } from "./output.ts"
import { caches, database, env } from "./service-commands.ts"
import { abandon, diff, events, pause, protect, resume, retry, status } from "./status-commands.ts"

const up = Command.make(
  "up",
  {
    file: Argument.String("file").pipe(
      Argument.withDescription("Manifest to apply once it serves"),
      Argument.optional
    ),
    apply: Flag.Boolean("apply").pipe(
      Flag.withDescription("--no-apply starts without applying a manifest"),
      Flag.withDefault(true)
    )
  },
  ({ file, apply }) =>
    Effect.flatMap(
      Effect.promise(() => import("./up.ts")),
      (loaded) => loaded.up({ file: Option.getOrUndefined(file), apply })
    )
).pipe(
  Command.withDescription(
    "Start the control plane on this machine; the first start applies the quick-start manifest"
  )
)

const down = Command.make(
  "down",
  {
    delete: Flag.Boolean("delete").pipe(
      Flag.withDescription("Remove the data as well"),
      Flag.withDefault(false)
    ),
    yes
  },
  (flags) =>
    Effect.flatMap(
      Effect.promise(() => import("./down.ts")),
      (loaded) => loaded.down(flags)
    )
).pipe(Command.withDescription("Stop everything that was started here"))

const doctor = Command.make(
  "doctor",
  {
    json: Flag.Boolean("json").pipe(Flag.withDescription("Print JSON for programs"), Flag.withDefault(false))
  },
  (flags) =>
    Effect.gen(function* () {
      const { dependencies } = yield* Effect.promise(() => import("../infra/dependencies.ts"))
      const found = yield* Effect.promise(() => dependencies())
      if (flags.json) yield* out(JSON.stringify({ dependencies: found }, null, 2))
      else {
        yield* out(
          table(
            ["", "DEPENDENCY", "FOUND", "NEEDED BY"],
            found.map((one) => [
              one.found === undefined ? "missing" : "ok",
              one.name,
              one.found ?? one.hint,
              one.neededBy
            ])
          )
        )
      }
      if (found.some((one) => one.found === undefined)) return yield* failure("")
    })
).pipe(Command.withDescription("Check what this machine needs (exits with 1 if something is missing)"))

const commands = [
  up,
  down,
  doctor,
  login,
  whoami,
  plan,
  apply,
  exportCommand,
  status,
  events,
  diff,
  retry,
  pause,
  resume,
  protect,
  abandon,
  env,
  caches,
  database,
  api
] as const

const base = Command.make("svc").pipe(
  Command.withDescription("A control plane for databases, caches and what else an application runs on")
)

const completion = Command.make(
  "completion",
  { shell: Argument.Literals("shell", ["bash", "zsh", "fish"]) },
  ({ shell }) =>
    out(
      Completions.generate(
        "svc",
        shell,
        Completions.fromCommand(base.pipe(Command.withSubcommands([...commands])))
      )
    )
).pipe(Command.withDescription("Print a completion script for a shell"))

/** Says why, to people, and chooses the exit code. */
const end = (cause: Cause.Cause<unknown>) =>
  Effect.sync(() => {
    if (Cause.hasInterruptsOnly(cause)) return 130
    const error: unknown = Cause.squash(cause)
    if (error instanceof CliFailure) {
      if (error.message !== "") process.stderr.write(`${paint("red", error.message)}\n`)
      return error.exitCode
    }
    // Wrong use: the parser has said what and shown the help.
    if (typeof error === "object" && error !== null && "_tag" in error && error._tag === "ShowHelp")
      return exitCodes.usage
    process.stderr.write(
      `svc failed unexpectedly: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`
    )
    return exitCodes.failure
  })

// Settings may be in a file as well; what the environment says goes first.
if (existsSync(".env")) process.loadEnvFile(".env")

base.pipe(
  Command.withSubcommands([...commands, completion]),
  Command.run({ version: "0.1.0" }),
  Effect.provide(NodeServices.layer),
  Effect.as(0),
  Effect.catchCause(end),
  Effect.tap((code) =>
    Effect.sync(() => {
      process.exitCode = code
    })
  ),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    // Being told to stop is no failure.
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? Number(process.exitCode ?? 0) : 0)
  })
)
