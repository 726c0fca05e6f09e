/** Every command there is. What a command needs is loaded when it runs: `svc --help` must be quick. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
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
import { exitCodes, failure } from "./failure.ts"
import { asJson, yes } from "./flags.ts"
import { audit, grants, keys } from "./key-commands.ts"
import { apply, exportCommand, manifest, plan } from "./manifest-commands.ts"
import { abandon, pause, protect, resume, retry } from "./operator-commands.ts"
import { json, out, table } from "./output.ts"
import { invitations, members, orgs } from "./people-commands.ts"
import { environments, projects } from "./project-commands.ts"
import { queues } from "./queue-commands.ts"
import { diff, events, show, status, wait } from "./status-commands.ts"
import { webhooks } from "./webhook-commands.ts"

/** The exit code of a command that is told to stop. For one that is there to be stopped, that is success. */
export const stopping: { code: number } = { code: exitCodes.interrupted }

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
        stopping.code = 0
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
    if (flags.json) yield* json({ dependencies: found, limits })
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
  manifest,
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

export const svc = base.pipe(Command.withSubcommands([...commands, completion]))
