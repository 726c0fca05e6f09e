/** `svc executions`. */
import * as fs from "node:fs/promises"
import { parseEnv, stripVTControlCharacters } from "node:util"
import * as Clock from "effect/Clock"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, connection, online, project, waiting } from "./flags.ts"
import { facts, json, out, say, table } from "./output.ts"

const id = Argument.String("id").pipe(Argument.withDescription("Id of the execution"))

const at = (orgId: string, projectId: string) => ({ orgId, projectId })
const one = (orgId: string, projectId: string, executionId: string) => ({ orgId, projectId, executionId })

type Shown = Effect.Success<ReturnType<typeof read>>
const read = Effect.fnUntraced(function* (projectId: string, executionId: string) {
  const { asMember, org } = yield* Client
  return yield* call(asMember.executions.get({ params: one(org, projectId, executionId) }))
})
const hasEnded = ({ finishedAt }: Shown) => finishedAt !== null

const outcome = ({ status, exitCode, error }: Shown) =>
  `${status}${exitCode === null ? "" : `, exit code ${exitCode}`}${error === null ? "" : `: ${error}`}`

/** Where printing goes on: on this page of the log, after so many of its entries. */
interface Printed {
  readonly page: string | undefined
  readonly entries: number
}
const nothing: Printed = { page: undefined, entries: 0 }

/** Writes what came since as it was printed. */
const print = Effect.fnUntraced(function* (projectId: string, executionId: string, from: Printed) {
  const { asMember, org } = yield* Client
  let { page, entries } = from
  for (;;) {
    const { items, nextCursor } = yield* call(
      asMember.executions.logs({
        params: one(org, projectId, executionId),
        headers: {},
        query: { limit: 1000, ...(page === undefined ? {} : { cursor: page }) }
      })
    )
    for (const { stream, text } of items.slice(entries)) {
      // A terminal is not to be steered by what somebody's program prints.
      const safe = process.stdout.isTTY === true ? stripVTControlCharacters(text) : text
      yield* Effect.sync(() => void (stream === "stdout" ? process.stdout : process.stderr).write(safe))
    }
    if (nextCursor === null) return { page, entries: items.length }
    page = nextCursor
    entries = 0
  }
})

/** Until it has ended, with what it prints meanwhile unless that would be in the way. */
const follow = Effect.fnUntraced(function* (
  projectId: string,
  executionId: string,
  timeoutSeconds: number,
  quiet = false
) {
  const deadline = (yield* Clock.currentTimeMillis) + timeoutSeconds * 1000
  let seen: Printed = nothing
  for (;;) {
    const shown = yield* read(projectId, executionId)
    const complete = hasEnded(shown) && shown.cleanupStatus !== "pending"
    if (!quiet) seen = yield* print(projectId, executionId, seen)
    if (complete) return shown
    if ((yield* Clock.currentTimeMillis) > deadline)
      return yield* failure(
        `The execution ${executionId} goes on; svc executions logs -f shows it`,
        exitCodes.timeout
      )
    yield* Effect.sleep("400 millis")
  }
})

const variables = Effect.fnUntraced(function* (file: Option.Option<string>, keys: ReadonlyArray<string>) {
  const fromFile = Option.isNone(file)
    ? {}
    : yield* Effect.tryPromise({
        try: async () => parseEnv(await fs.readFile(file.value, "utf8")),
        catch: (cause) => failure(`${file.value} cannot be read: ${String(cause)}`, exitCodes.usage)
      })
  const own: Record<string, string> = {}
  for (const key of keys) {
    const value = process.env[key]
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
  const password = flags.passwordStdin
    ? yield* Effect.tryPromise({
        try: async () => {
          let text = ""
          for await (const chunk of process.stdin) text += String(chunk)
          return text.replace(/\r?\n$/, "")
        },
        catch: (cause) => failure(`The password cannot be read: ${String(cause)}`, exitCodes.usage)
      })
    : (process.env[passwordVariable] ?? "")
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

const run = Command.make(
  "run",
  {
    ...connection,
    ...waiting,
    json: asJson,
    project,
    image: Argument.String("image").pipe(
      Argument.withDescription("Such as alpine:3 or ghcr.io/you/tool@sha256:...")
    ),
    command: Argument.String("command").pipe(
      Argument.withDescription("Program and arguments, after --"),
      Argument.variadic({ min: 1 })
    ),
    region: Flag.String("region").pipe(Flag.withDefault("local")),
    cpus: number("cpus", "Processors (default 1)"),
    memory: number("memory", "MiB (default 512)"),
    performance: Flag.Boolean("performance").pipe(
      Flag.withDescription("Processors for itself"),
      Flag.withDefault(false)
    ),
    runTimeout: number("run-timeout", "Seconds that the command may take (default 3600)"),
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
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const resources = {
          ...(Option.isSome(flags.cpus) ? { cpus: flags.cpus.value } : {}),
          ...(Option.isSome(flags.memory) ? { memoryMb: flags.memory.value } : {}),
          ...(flags.performance ? { cpuKind: "performance" as const } : {})
        }
        const [program = "", ...rest] = flags.command
        const made = yield* call(
          asMember.executions.create({
            params: at(org, flags.project),
            headers: {},
            payload: {
              image: flags.image,
              command: [program, ...rest],
              region: flags.region,
              resources,
              ...(Option.isSome(flags.runTimeout) ? { timeoutSeconds: flags.runTimeout.value } : {}),
              ...(yield* variables(flags.envFile, flags.env)),
              ...(yield* credentials(flags))
            }
          })
        )
        if (!flags.wait) return yield* flags.json ? json(made) : out(made.id)
        yield* say(`Execution ${made.id} starts`)
        const done = yield* follow(flags.project, made.id, flags.timeout, flags.json)
        if (flags.json) yield* json(done)
        yield* say(`${done.id} ${outcome(done)}`)
        if (done.status !== "succeeded") return yield* failure("")
      })
    )
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

const ls = Command.make("ls", { ...connection, json: asJson, project }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const all = yield* call(
        asMember.executions.list({ params: at(org, flags.project), query: { limit: 100 } })
      )
      if (flags.json) return yield* json(all)
      yield* out(
        table(
          ["ID", "STATUS", "EXIT", "IMAGE", "CREATED"],
          all.map((execution) => [
            execution.id,
            execution.status,
            execution.exitCode === null ? (execution.errorCode ?? "") : String(execution.exitCode),
            execution.image,
            execution.createdAt
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("The last 100 executions, newest first"))

const get = Command.make("get", { ...connection, json: asJson, project, id }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const shown = yield* read(flags.project, flags.id)
      if (flags.json) return yield* json(shown)
      const { cpuKind, cpus, memoryMb } = shown.resources
      yield* out(
        facts([
          ["Id", shown.id],
          ["Status", outcome(shown)],
          ["Image", shown.image],
          ["Digest", shown.imageDigest ?? "not fetched"],
          ["Command", shown.command.join(" ")],
          ["Resources", `${cpus} CPUs (${cpuKind}), ${memoryMb} MiB, ${shown.timeoutSeconds} s`],
          ["Created", shown.createdAt],
          ["Started", shown.startedAt ?? "never"],
          ["Finished", shown.finishedAt ?? "not yet"],
          ["Cleanup", shown.cleanupStatus]
        ])
      )
    })
  )
).pipe(Command.withDescription("Show an execution"))

const logs = Command.make(
  "logs",
  {
    ...connection,
    ...waiting,
    project,
    id,
    follow: Flag.Boolean("follow").pipe(
      Flag.withAlias("f"),
      Flag.withDescription("Until it has ended"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    online(
      flags,
      flags.follow
        ? Effect.asVoid(follow(flags.project, flags.id, flags.timeout))
        : Effect.asVoid(print(flags.project, flags.id, nothing))
    )
).pipe(Command.withDescription("What an execution printed"))

const cancel = Command.make("cancel", { ...connection, ...waiting, json: asJson, project, id }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      let shown: Shown = yield* call(
        asMember.executions.cancel({ params: one(org, flags.project, flags.id), headers: {} })
      )
      const deadline = (yield* Clock.currentTimeMillis) + flags.timeout * 1000
      while (flags.wait && !hasEnded(shown)) {
        if ((yield* Clock.currentTimeMillis) > deadline)
          return yield* failure(`The execution ${flags.id} goes on`, exitCodes.timeout)
        yield* Effect.sleep("400 millis")
        shown = yield* read(flags.project, flags.id)
      }
      yield* flags.json ? json(shown) : say(`${shown.id} ${outcome(shown)}`)
    })
  )
).pipe(Command.withDescription("End an execution before its time"))

const availability = Command.make("availability", { ...connection, json: asJson, project }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const offered = yield* call(asMember.executions.availability({ params: at(org, flags.project) }))
      if (flags.json) return yield* json(offered)
      const { limits } = offered
      const range = ({ min, max }: { readonly min: number; readonly max: number }) => `${min} to ${max}`
      yield* out(
        facts([
          ["Ready", offered.ready ? "yes" : "no: svc doctor says what is missing"],
          ["Regions", offered.regions.map((region) => region.id).join(", ")],
          ["Architectures", offered.architectures.join(", ")],
          ["CPU kinds", offered.cpuKinds.join(", ")],
          ["CPUs", range(limits.cpus)],
          ["Memory", `${range(limits.memoryMb)} MiB`],
          ["Time", `${range(limits.timeoutSeconds)} s`],
          ["At once", String(limits.maxActiveExecutionsPerProject ?? "no limit")],
          ["Variables", String(limits.maxEnvVariables)],
          ["Nested containers", offered.runtime.nestedContainers ? "yes" : "no"],
          ["Private registries", offered.privateImageRegistries.join(", ")]
        ])
      )
    })
  )
).pipe(Command.withDescription("What executions may ask for here"))

export const executions = Command.make("executions").pipe(
  Command.withDescription("Commands that run once, in containers"),
  Command.withSubcommands([run, ls, get, logs, cancel, availability])
)
