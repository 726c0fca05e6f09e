/** `svc executions run`. */
import { parseEnv } from "node:util"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { readStdin, waiting } from "#src/cli/flags.ts"
import { Invocation, readTextFile, variable } from "#src/cli/invocation.ts"
import { json, out, say } from "#src/cli/output.ts"
import { region, regionOr } from "#src/cli/region.ts"
import { commandIn, inProject } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { follow, outcome } from "./follow-command.ts"

const variables = Effect.fnUntraced(function* (file: Option.Option<string>, keys: ReadonlyArray<string>) {
  const fromFile = Option.isNone(file)
    ? {}
    : yield* readTextFile(file.value).pipe(
        Effect.map((text) => parseEnv(text)),
        Effect.mapError((cause) => failure(`${file.value} cannot be read: ${cause}`, exitCodes.usage))
      )
  const { env } = yield* Invocation
  const own: Record<string, string> = {}
  for (const key of keys) {
    const value = env[key]
    if (key.includes("="))
      return yield* failure(
        "--env takes the name of a variable of this environment; values do not belong in a command line (use --env-file)",
        exitCodes.usage
      )
    if (value === undefined) return yield* failure(`${key} is not set in this environment`, exitCodes.usage)
    own[key] = value
  }
  const all = Object.entries({ ...fromFile, ...own }).flatMap(([key, value]) =>
    value === undefined ? [] : [[key, value] as const]
  )
  return all.length === 0 ? {} : { env: Object.fromEntries(all) }
})

const passwordVariable = "SVC_PULL_PASSWORD"
const credentials = Effect.fnUntraced(function* (flags: {
  readonly registry: Option.Option<string>
  readonly username: Option.Option<string>
  readonly passwordStdin: boolean
}) {
  if (Option.isNone(flags.username)) return {}
  if (Option.isNone(flags.registry)) return yield* failure("Say --registry as well", exitCodes.usage)
  const password = flags.passwordStdin ? yield* readStdin : ((yield* variable(passwordVariable)) ?? "")
  if (password === "")
    return yield* failure(
      `Give the password with --password-stdin, or in the variable ${passwordVariable}`,
      exitCodes.usage
    )
  return {
    imagePullCredentials: { registry: flags.registry.value, username: flags.username.value, password }
  }
})

const number = (name: string, description: string) =>
  Flag.Finite(name).pipe(Flag.withDescription(description), Flag.optional)

export const run = commandIn(inProject)(
  "run",
  {
    ...waiting,
    image: Argument.String("image").pipe(
      Argument.withDescription("Such as alpine:3 or ghcr.io/you/tool@sha256:...")
    ),
    command: Argument.String("command").pipe(
      Argument.withDescription("Program and arguments, after --"),
      Argument.variadic({ min: 1 })
    ),
    region,
    resources: {
      cpus: number("cpus", "Processors (default 1)"),
      memoryMb: number("memory", "MiB (default 512)")
    },
    performance: Flag.Boolean("performance").pipe(
      Flag.withDescription("Processors for itself"),
      Flag.withDefault(false)
    ),
    runTimeout: number("run-timeout", "Seconds that the command may take (default 3600)"),
    services: Flag.Boolean("services").pipe(
      Flag.withDescription(
        "With the variables and servers of the production environment (takes the role admin)"
      ),
      Flag.withDefault(false)
    ),
    envFile: Flag.String("env-file").pipe(Flag.withDescription("File with KEY=value lines"), Flag.optional),
    env: Flag.String("env").pipe(
      Flag.withAlias("e"),
      Flag.withDescription("Name of a variable of this environment to hand on; may be repeated"),
      Flag.atLeast(0)
    ),
    registry: Flag.String("registry").pipe(Flag.withDescription("Host of a private registry"), Flag.optional),
    username: Flag.String("username").pipe(Flag.withDescription("At the registry"), Flag.optional),
    passwordStdin: Flag.Boolean("password-stdin").pipe(
      Flag.withDescription(`Reads the registry's password from stdin (otherwise ${passwordVariable})`),
      Flag.withDefault(false)
    )
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const resources = {
        ...given(flags.resources),
        ...(flags.performance ? { cpuKind: "performance" as const } : {})
      }
      const [program = "", ...rest] = flags.command
      const project = yield* at
      const made = yield* call(
        client.asMember.executions.create({
          ...project,
          headers: {},
          payload: {
            image: flags.image,
            command: [program, ...rest],
            region: yield* regionOr(flags.region, project.params),
            resources,
            ...(Option.isSome(flags.runTimeout) ? { timeoutSeconds: flags.runTimeout.value } : {}),
            ...(flags.services ? { services: true } : {}),
            ...(yield* variables(flags.envFile, flags.env)),
            ...(yield* credentials(flags))
          }
        })
      )
      if (!flags.wait) return yield* asJson ? json(made) : out(made.id)
      yield* say(`Execution ${made.id} starts`)
      const done = yield* follow(where.project, made.id, flags.timeout, asJson)
      if (asJson) yield* json(done)
      yield* say(`${done.id} ${outcome(done)}`)
      if (done.status !== "succeeded") return yield* failure("")
    })
).pipe(
  Command.withDescription(
    "Run a command in a container, show what it prints, and exit with 1 if it does not succeed"
  ),
  Command.withExamples([
    {
      command: "svc executions run shop alpine:3 -- sh -c 'echo hello'",
      description: "Program and arguments after --"
    }
  ])
)
