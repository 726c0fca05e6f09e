/** `svc executions`. */
import * as Clock from "effect/Clock"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, connection, online, project, waiting, yes } from "#src/cli/flags.ts"
import { facts, json, out, say } from "#src/cli/output.ts"
import { inProject, resourceCommands } from "#src/cli/resource-commands.ts"
import { follow, hasEnded, nothing, outcome, print, read, type Shown } from "./follow-command.ts"
import { run } from "./run-command.ts"

const id = Argument.String("id").pipe(Argument.withDescription("Id of the execution"))

const { command, ls } = resourceCommands({
  scope: inProject,
  noun: "execution",
  plural: "executions",
  argument: id,
  list: ({ asMember }, at) => asMember.executions.list({ ...at, query: { limit: 100 } }),
  nameOf: (execution) => execution.id,
  one: ({ params }, execution) => ({ params: { ...params, executionId: execution.id } })
})

const list = ls({
  columns: {
    ID: (execution) => execution.id,
    STATUS: ({ status }) => status,
    EXIT: ({ exitCode, errorCode }) => (exitCode === null ? (errorCode ?? "") : String(exitCode)),
    IMAGE: ({ image }) => image,
    CREATED: ({ createdAt }) => createdAt
  }
}).pipe(Command.withDescription("The last 100 executions, newest first"))

/** Read by its id, for the list holds the last ones only. */
const get = command("get", { id }, ({ where, json: asJson, flags }) =>
  Effect.gen(function* () {
    const shown = yield* read(where.project, flags.id)
    if (asJson) return yield* json(shown)
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

const cancel = command("cancel", { ...waiting, id, yes }, ({ client, at, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params } = yield* at
    yield* confirmName(`This ends the execution ${flags.id}.`, flags.id, flags.yes)
    let shown: Shown = yield* call(
      client.asMember.executions.cancel({ params: { ...params, executionId: flags.id }, headers: {} })
    )
    const deadline = (yield* Clock.currentTimeMillis) + flags.timeout * 1000
    while (flags.wait && !hasEnded(shown)) {
      if ((yield* Clock.currentTimeMillis) > deadline)
        return yield* failure(`The execution ${flags.id} goes on`, exitCodes.timeout)
      yield* Effect.sleep("400 millis")
      shown = yield* read(where.project, flags.id)
    }
    yield* asJson ? json(shown) : say(`${shown.id} ${outcome(shown)}`)
  })
).pipe(Command.withDescription("End an execution before its time"))

const availability = command("availability", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const offered = yield* call(client.asMember.executions.availability(yield* at))
    if (asJson) return yield* json(offered)
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
).pipe(Command.withDescription("What executions may ask for here"))

export const executions = Command.make("executions").pipe(
  Command.withDescription("Commands that run once, in containers"),
  Command.withSubcommands([run, list, get, logs, cancel, availability])
)
