/** Every command there is. What a command needs is loaded when it runs: `svc --help` must be quick. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { AnyCommand } from "#src/feature.ts"
import { features } from "#src/features.ts"
import { api } from "#src/identity/api-command.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, yes } from "./flags.ts"
import { json, out, table } from "./output.ts"

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
    const { dependencies } = yield* Effect.promise(() => import("#src/infra/host/dependencies.ts"))
    const { limitsOfServers } = yield* Effect.promise(() => import("./doctor-limits.ts"))
    const found = yield* Effect.promise(() => dependencies("versions"))
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

const base = Command.make("svc").pipe(
  Command.withDescription("A control plane for databases, caches and what else an application runs on")
)

/** `svc` with the commands of all features. */
export const loadCommands = Effect.promise(async () => {
  const parts = await Promise.all(features.map((feature) => feature.commands()))
  const admin = Command.make("admin").pipe(
    Command.withDescription("What needs access to the state store itself"),
    Command.withSubcommands([adminCredentials, rotateKeys, ...parts.flatMap(({ admin }) => admin ?? [])])
  )
  const commands = [up, down, doctor, admin, ...parts.flatMap(({ commands }) => commands), api] as const
  const completion = Command.make(
    "completion",
    { shell: Argument.Literals("shell", ["bash", "zsh", "fish"]) },
    ({ shell }) =>
      out(
        Completions.generate(
          "svc",
          shell,
          Completions.fromCommand(base.pipe(Command.withSubcommands(commands)))
        )
      )
  ).pipe(Command.withDescription("Print a completion script for a shell"))
  return base.pipe(Command.withSubcommands([...commands, completion]))
})

/** Loading those of all features is a tenth of what starting a control plane takes, and these need none of them. */
const ofNoFeature = new Map<string | undefined, AnyCommand>([
  ["up", up],
  ["down", down],
  ["doctor", doctor]
])

/** `svc` with the command that the arguments name, at least. */
export const loadCommandsFor = (args: ReadonlyArray<string>) => {
  const alone = ofNoFeature.get(args[0])
  return alone === undefined ? loadCommands : Effect.succeed(base.pipe(Command.withSubcommands([alone])))
}
