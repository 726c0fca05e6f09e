/** `svc executions`. */
import * as Clock from "effect/Clock"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { Client, call } from "./client.ts"
import { at, follow, hasEnded, nothing, one, outcome, print, read, type Shown } from "./execution-follow.ts"
import { run } from "./execution-run.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, online, project, waiting, yes } from "./flags.ts"
import { facts, json, out, say, table } from "./output.ts"

const id = Argument.String("id").pipe(Argument.withDescription("Id of the execution"))

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

const cancel = Command.make(
  "cancel",
  { ...connection, ...waiting, json: asJson, project, id, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        yield* confirmName(`This ends the execution ${flags.id}.`, flags.id, flags.yes)
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
