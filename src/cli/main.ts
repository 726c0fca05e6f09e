/** The command line, composed. What a command needs is loaded when it runs: `svc --help` must be quick. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as Cause from "effect/Cause"
import * as Argument from "effect/cli/Argument"
import * as CliConfig from "effect/cli/CliConfig"
import * as CliOutput from "effect/cli/CliOutput"
import * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Flag from "effect/cli/Flag"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { api, login, logout, whoami } from "./access-commands.ts"
import { adminBilling, adminOrgs } from "./admin-commands.ts"
import { backups } from "./backup-commands.ts"
import { caches } from "./cache-commands.ts"
import { crons } from "./cron-commands.ts"
import { database } from "./database-commands.ts"
import { destinations } from "./destination-commands.ts"
import { env } from "./env-commands.ts"
import { executions } from "./execution-commands.ts"
import { CliFailure, exitCodes, failure } from "./failure.ts"
import { asJson, yes } from "./flags.ts"
import { audit, grants, keys } from "./key-commands.ts"
import { apply, exportCommand, plan } from "./manifest-commands.ts"
import { abandon, pause, protect, resume, retry } from "./operator-commands.ts"
import { out, paint, table } from "./output.ts"
import { invitations, members, orgs } from "./people-commands.ts"
import { environments, projects } from "./project-commands.ts"
import { queues } from "./queue-commands.ts"
import { loadFolderSettings } from "./settings.ts"
import { diff, events, show, status, wait } from "./status-commands.ts"
import { webhooks } from "./webhook-commands.ts"

/** For a process that is there to be stopped, being told to stop is success. */
let stopping = exitCodes.interrupted as number

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
      (loaded) => {
        stopping = 0
        return loaded.up({ file: Option.getOrUndefined(file), apply })
      }
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

const doctor = Command.make("doctor", { json: asJson }, (flags) =>
  Effect.gen(function* () {
    const { dependencies } = yield* Effect.promise(() => import("../infra/dependencies.ts"))
    const { limitsOfServers } = yield* Effect.promise(() => import("./doctor-limits.ts"))
    const found = yield* Effect.promise(() => dependencies())
    const limits = yield* limitsOfServers
    if (flags.json) yield* out(JSON.stringify({ dependencies: found, limits }, null, 2))
    else {
      yield* out(
        table(
          ["", "DEPENDENCY", "FOUND", "NEEDED BY"],
          [
            ...found.map((one) => [
              one.found === undefined ? "missing" : "ok",
              one.name,
              one.found ?? one.hint,
              one.neededBy
            ]),
            [
              limits.found !== undefined ? "ok" : limits.required ? "missing" : "without",
              "limits of servers",
              limits.found ?? `${limits.why}; ${limits.hint}`,
              "keeping a tenant's server from taking all memory of the machine"
            ]
          ]
        )
      )
    }
    if (found.some((one) => one.found === undefined) || (limits.required && limits.found === undefined))
      return yield* failure("")
  })
).pipe(Command.withDescription("Check what this machine needs (exits with 1 if something is missing)"))

const adminCredentials = Command.make(
  "credentials",
  {
    org: Flag.String("org").pipe(Flag.withDescription("Organization"), Flag.withDefault("main")),
    json: asJson
  },
  (flags) =>
    Effect.flatMap(
      Effect.promise(() => import("./admin.ts")),
      (loaded) => loaded.credentials(flags)
    )
).pipe(
  Command.withDescription("Make and store a new API key and owner's session, when the first ones are lost")
)

const rotateKeys = Command.make("rotate-keys", { json: asJson }, (flags) =>
  Effect.flatMap(
    Effect.promise(() => import("./admin.ts")),
    (loaded) => loaded.rotate(flags)
  )
).pipe(Command.withDescription("Seal every secret anew with the first key of SVC_ENCRYPTION_KEYS"))

const admin = Command.make("admin").pipe(
  Command.withDescription("What needs access to the state store itself"),
  Command.withSubcommands([adminCredentials, rotateKeys, adminOrgs, adminBilling])
)

const commands = [
  up,
  down,
  doctor,
  admin,
  login,
  logout,
  whoami,
  plan,
  apply,
  exportCommand,
  status,
  show,
  wait,
  events,
  diff,
  retry,
  pause,
  resume,
  protect,
  abandon,
  projects,
  environments,
  env,
  caches,
  queues,
  crons,
  executions,
  backups,
  destinations,
  database,
  orgs,
  members,
  invitations,
  keys,
  grants,
  audit,
  webhooks,
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

const isShowHelp = (error: unknown): error is { readonly errors: ReadonlyArray<unknown> } =>
  typeof error === "object" &&
  error !== null &&
  "_tag" in error &&
  error._tag === "ShowHelp" &&
  "errors" in error

/** Says why, to people, and chooses the exit code. */
const end = (cause: Cause.Cause<unknown>) =>
  Effect.sync(() => {
    if (Cause.hasInterruptsOnly(cause)) return stopping
    const error: unknown = Cause.squash(cause)
    if (error instanceof CliFailure) {
      if (error.message !== "") process.stderr.write(`${paint("red", error.message)}\n`)
      return error.exitCode
    }
    // Wrong use has been told already. To ask for nothing in particular shows the help, and is no mistake.
    if (isShowHelp(error)) {
      if (error.errors.length === 0) return 0
      // There 2 says that there are changes, and nothing else.
      return process.argv.includes("--detailed-exitcode") ? exitCodes.failure : exitCodes.usage
    }
    process.stderr.write(
      `svc failed unexpectedly: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`
    )
    return exitCodes.failure
  })

/** What is wrong goes to stderr in few lines; the whole help would bury it. */
const presenter = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Effect.sync(() => {
          const lines = event.errors.map(({ message }) => paint("red", message))
          process.stderr.write(`${lines.join("\n")}\nSee ${event.commandPath.join(" ")} --help\n`)
        })
      : CliOutput.defaultPresenter.present(event)
})
const config = CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version] })

loadFolderSettings()

// Who reads only the beginning (svc events ... | head) is not told of an error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  process.exit(error.code === "EPIPE" ? 0 : exitCodes.failure)
})

base.pipe(
  Command.withSubcommands([...commands, completion]),
  Command.run({ version: "0.1.0" }),
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
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? Number(process.exitCode ?? 0) : stopping)
  })
)
