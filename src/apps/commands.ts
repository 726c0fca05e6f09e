/** `svc ps`, `svc logs` and `svc apps`. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { facts, json, out, say, table } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { onTerminal } from "#src/executions/follow-command.ts"
import type { AppView } from "./api.ts"

const command = commandIn(inEnvironment)

const instancesOf = ({ instances, maxInstances, requestsPerInstance }: AppView) =>
  maxInstances > instances
    ? `${instances} to ${maxInstances} (${requestsPerInstance} requests each)`
    : String(instances)

const appFacts = (app: AppView) =>
  facts([
    ["Status", app.status],
    ["Power", app.power],
    ["Deployment", app.deploymentId ?? "none answers"],
    ["Size", `${instancesOf(app)} x ${app.cpus} CPUs, ${app.memoryMb} MiB`],
    ["Port", String(app.port)],
    ["Health check", `${app.healthCheck.path}, ${app.healthCheck.startSeconds} s to start`],
    ["Sleep", `paused after ${app.idle.pauseSeconds} s, stopped after ${app.idle.stopSeconds} s`],
    ...(app.lastFailure === null ? [] : [["Last failure", app.lastFailure] as const])
  ])

export const ps = command("ps", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const place = yield* at
    const app = yield* call(client.asMember.apps.get(place))
    const instances = yield* call(client.asMember.apps.instances(place))
    if (asJson) return yield* json({ app, instances })
    yield* out(appFacts(app))
    yield* out("")
    yield* out(
      table(
        ["INSTANCE", "STATE", "DEPLOYMENT", "STARTED", "ENDED"],
        instances.map((one) => [
          one.id,
          one.state,
          one.deploymentId,
          one.startedAt ?? "",
          one.endedAt === null ? "" : `${one.endedAt} ${one.exitReason ?? ""}`
        ])
      )
    )
  })
).pipe(Command.withDescription("The app of an environment and its instances"))

export const logs = command(
  "logs",
  {
    follow: Flag.Boolean("follow").pipe(
      Flag.withAlias("f"),
      Flag.withDescription("Goes on with what is printed, also by instances to come"),
      Flag.withDefault(false)
    ),
    instance: Flag.String("instance").pipe(
      Flag.withDescription("Id of an instance; the newest one otherwise"),
      Flag.optional
    ),
    search: Flag.String("search").pipe(
      Flag.withDescription("Only lines with this text, in any case of letters"),
      Flag.optional
    )
  },
  ({ at, flags }) =>
    Effect.gen(function* () {
      const { asMember } = yield* Client
      const { stdout, stderr } = yield* Invocation
      const place = yield* at
      const asked = Option.getOrUndefined(flags.instance)
      /** Entries that were printed, by instance: of its last page, and where that begins. */
      const printed = new Map<string, { readonly cursor: string | undefined; readonly entries: number }>()
      for (;;) {
        const all = yield* call(asMember.apps.instances(place))
        const newest = all.slice(0, 1)
        const live = all.filter(({ id, state }) => state !== "ended" || printed.has(id))
        const chosen =
          asked === undefined
            ? flags.follow
              ? [...live, ...newest]
              : newest
            : all.filter(({ id }) => id === asked)
        if (chosen.length === 0) return yield* failure("There is no such instance", exitCodes.notFound)
        for (const id of new Set(chosen.map((one) => one.id).toReversed())) {
          let { cursor, entries } = printed.get(id) ?? { cursor: undefined, entries: 0 }
          for (;;) {
            const { items, nextCursor }: LogPage = yield* call(
              asMember.apps.logs({
                params: place.params,
                headers: {},
                query: {
                  ...place.query,
                  instance: id,
                  limit: 1000,
                  ...(Option.isSome(flags.search) ? { search: flags.search.value } : {}),
                  ...(cursor === undefined ? {} : { cursor })
                }
              })
            )
            for (const { stream, text } of items.slice(entries)) {
              const target = stream === "stdout" ? stdout : stderr
              yield* Effect.sync(() => void target.write(target.isTTY === true ? onTerminal(text) : text))
            }
            entries = items.length
            if (nextCursor === null) break
            cursor = nextCursor
            entries = 0
          }
          printed.set(id, { cursor, entries })
        }
        if (!flags.follow) return
        yield* Effect.sleep("1 second")
      }
    })
).pipe(Command.withDescription("What the app of an environment prints"))

interface LogPage {
  readonly items: ReadonlyArray<{ readonly stream: string; readonly text: string }>
  readonly nextCursor: string | null
}

const get = command("get", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const app = yield* call(client.asMember.apps.get(yield* at))
    yield* asJson ? json(app) : out(appFacts(app))
  })
).pipe(Command.withDescription("Show the app of an environment"))

const whole = (name: string, description: string) =>
  Flag.Int(name).pipe(Flag.withDescription(description), Flag.optional)

const update = command(
  "update",
  {
    plain: {
      instances: whole("instances", "How many run, at least"),
      maxInstances: whole("max-instances", "How many run at most, as the requests under way need them"),
      requestsPerInstance: whole(
        "requests-per-instance",
        "Requests under way, per instance, above which another is started"
      ),
      cpus: Flag.Finite("cpus").pipe(Flag.withDescription("Processors of one instance"), Flag.optional),
      memoryMb: whole("memory", "MiB of one instance"),
      port: whole("port", "Where the app listens (PORT)")
    },
    healthCheck: {
      path: Flag.String("health-path").pipe(
        Flag.withDescription("What answers below 400 when an instance is healthy"),
        Flag.optional
      ),
      startSeconds: whole("health-start", "Seconds until a new instance has to be healthy"),
      failures: whole(
        "health-failures",
        "Checks in a row that a healthy instance may not answer; 0: any number"
      )
    },
    idle: {
      pauseSeconds: whole("pause-after", "Seconds without a request until it is paused"),
      stopSeconds: whole("stop-after", "Seconds without a request until it is stopped")
    }
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const [plain, healthCheck, idle] = [given(flags.plain), given(flags.healthCheck), given(flags.idle)]
      const app = yield* call(
        client.asMember.apps.update({ ...(yield* at), payload: { ...plain, healthCheck, idle } })
      )
      yield* asJson ? json(app) : out(appFacts(app))
    })
).pipe(
  Command.withDescription("Change how many instances run, their size, their health check and when they sleep")
)

const restart = command("restart", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const app = yield* call(client.asMember.apps.restart({ ...(yield* at), headers: {} }))
    yield* asJson ? json(app) : say("New instances are started; the others end once those are healthy")
  })
).pipe(Command.withDescription("Start new instances of the same deployment"))

export const apps = Command.make("apps").pipe(
  Command.withDescription("What answers at the addresses of environments"),
  Command.withSubcommands([get, update, restart])
)
