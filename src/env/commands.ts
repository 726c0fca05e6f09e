/** `svc env`. */
import { parseEnv } from "node:util"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, type Place, readSecret, waiting, yes } from "#src/cli/flags.ts"
import { readTextFile } from "#src/cli/invocation.ts"
import { exact, json, say } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { findAt, type Waiting, waitForOne } from "#src/cli/wait.ts"

const command = commandIn(inEnvironment)

const ls = command(
  "ls",
  {
    show: Flag.Boolean("show").pipe(Flag.withDescription("Print values too"), Flag.withDefault(false))
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const variables = yield* call(client.asMember.env.list(yield* at))
      const shown = variables.map((one) => ({ ...one, value: flags.show ? one.value : "****" }))
      if (asJson) return yield* json(shown)
      if (shown.length === 0)
        return yield* say(`There are no variables in ${where.project}/${where.environment}`)
      yield* exact(shown.map(({ key, value }) => `${key}=${flags.show ? quoted(value) : value}`).join("\n"))
      const marked = shown.flatMap(({ key, build }) => (build === true ? [key] : []))
      if (marked.length > 0) yield* say(`Builds are given ${marked.join(", ")} as well`)
    })
).pipe(Command.withAlias("list"), Command.withDescription("List variables; values only with --show"))

/** So that what is printed can be read again with --from-file. */
const quoted = (value: string): string => {
  if (/^[\w./:@%+,-]*$/.test(value)) return value
  const mark = [`"`, `'`, "`"].find((one) => !value.includes(one)) ?? `"`
  return `${mark}${value}${mark}`
}

const readFile = (file: string) =>
  readTextFile(file).pipe(
    Effect.map((text) => Object.entries(parseEnv(text)).map(([key, value]) => ({ key, value: value ?? "" }))),
    Effect.mapError(({ message }) => failure(`Cannot read ${file}: ${message}`, exitCodes.usage))
  )

/** Waits until the variables are in force, and answers how they are doing. */
const inForce = Effect.fnUntraced(function* (where: Place, flags: Waiting) {
  const found = yield* findAt("EnvVariables", where)
  if (flags.wait && found !== undefined) yield* waitForOne(found.uid, flags)
})

const set = command(
  "set",
  {
    ...waiting,
    key: Argument.String("key").pipe(
      Argument.withDescription("Name of one variable; its value comes from standard input"),
      Argument.optional
    ),
    fromFile: Flag.String("from-file").pipe(
      Flag.withDescription("Set every variable of a .env file"),
      Flag.optional
    ),
    build: Flag.Boolean("build").pipe(
      Flag.withDescription("Whether builds are given it as well, and not only what runs; without: as before"),
      Flag.optional
    )
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const key = Option.getOrUndefined(flags.key)
      if (Option.isSome(flags.fromFile) === (key !== undefined))
        return yield* failure("Name either a variable, or a file with --from-file", exitCodes.usage)
      if (key?.includes("=") === true)
        return yield* failure(
          "A value in an argument shows in the process list; pipe it: printf %s VALUE | svc env set PROJECT KEY",
          exitCodes.usage
        )
      const given = Option.isSome(flags.fromFile)
        ? yield* readFile(flags.fromFile.value)
        : [{ key: key ?? "", value: yield* readSecret(`Value of ${key}`) }]
      const vars = Option.match(flags.build, {
        onNone: () => given,
        onSome: (build) => given.map((one) => ({ ...one, build }))
      })
      const { count } = yield* call(client.asMember.env.set({ ...(yield* at), payload: { vars } }))
      yield* inForce(where, flags)
      yield* asJson
        ? json({ set: vars.map((variable) => variable.key) })
        : say(
            `${count} ${count === 1 ? "variable" : "variables"} set in ${where.project}/${where.environment}`
          )
    })
).pipe(
  Command.withDescription("Set one variable from standard input, or many from a file"),
  Command.withExamples([
    { command: 'printf %s "$TOKEN" | svc env set shop API_TOKEN', description: "One variable" },
    { command: "svc env set shop --from-file .env.production", description: "Every variable of a file" }
  ])
)

const rm = command(
  "rm",
  { ...waiting, key: Argument.String("key"), yes },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      yield* confirmName(
        `This removes ${flags.key} from ${where.project}/${where.environment}; its value is shown to nobody again.`,
        flags.key,
        flags.yes
      )
      yield* call(client.asMember.env.delete({ params: { ...params, key: flags.key }, query }))
      yield* inForce(where, flags)
      yield* asJson
        ? json({ removed: [flags.key] })
        : say(`${flags.key} removed from ${where.project}/${where.environment}`)
    })
).pipe(Command.withAlias("delete"), Command.withDescription("Remove a variable"))

export const env = Command.make("env").pipe(
  Command.withDescription("Variables of an environment"),
  Command.withSubcommands([ls, set, rm])
)
