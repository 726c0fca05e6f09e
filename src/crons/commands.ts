/** `svc crons`. */

import * as Clock from "effect/Clock"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { ConcurrencyPolicy, CronMethod } from "#schemas/cron.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { waiting } from "#src/cli/flags.ts"
import { jsonOf } from "#src/cli/json-text.ts"
import { json, out, paint, say, table } from "#src/cli/output.ts"
import { inEnvironment, resourceCommands } from "#src/cli/resource-commands.ts"
import { type Given, given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the cron job"))
const { command, on, ls, get, update, remove } = resourceCommands({
  scope: inEnvironment,
  noun: "cron job",
  plural: "cron jobs",
  argument: name,
  list: ({ asMember }, at) => asMember.crons.list(at),
  nameOf: (cron) => cron.name,
  one: ({ params }, { id }) => ({ params: { ...params, cronId: id }, headers: {} })
})

const list = ls({
  columns: {
    NAME: (cron) => cron.name,
    SCHEDULE: ({ schedule }) => schedule,
    "TIME ZONE": ({ timezone }) => timezone,
    "LAST RUN": ({ lastRunAt }) => lastRunAt ?? "never",
    "NEXT RUN": ({ enabled, nextRunAt }) => (enabled ? (nextRunAt ?? "never") : "switched off")
  }
})

const show = get((cron) => [
  ["Name", cron.name],
  ["Id", cron.id],
  ["Environment", cron.environment],
  ["Schedule", `${cron.schedule} (${cron.timezone})`],
  ["Switched on", cron.enabled ? "yes" : "no"],
  [
    "Target",
    cron.target.kind === "http" ? `${cron.target.method} ${cron.target.path}` : `queue ${cron.target.queue}`
  ],
  [
    "Attempts",
    `${cron.retry.maxAttempts}, ${cron.retry.initialDelaySeconds} to ${cron.retry.maxDelaySeconds} s apart, ${cron.timeoutSeconds} s each`
  ],
  ["Beside another run", cron.concurrencyPolicy],
  ["Last run", cron.lastRunAt ?? "never"],
  ["Next run", cron.nextRunAt ?? "never"]
])

const settings = {
  timezone: Flag.String("timezone").pipe(Flag.withDescription("IANA name (default UTC)"), Flag.optional),
  target: {
    path: Flag.String("path").pipe(
      Flag.withDescription("Path of the app that is called, such as /jobs/nightly"),
      Flag.optional
    ),
    method: Flag.Literals("method", CronMethod.literals).pipe(Flag.optional),
    queue: Flag.String("queue").pipe(
      Flag.withDescription("Queue that is published to, instead of a path"),
      Flag.optional
    ),
    body: Flag.String("body").pipe(Flag.withDescription("JSON that every run carries"), Flag.optional)
  },
  retry: {
    maxAttempts: Flag.Int("attempts").pipe(Flag.withDescription("1 to 10 in all"), Flag.optional)
  },
  concurrencyPolicy: Flag.Literals("concurrency", ConcurrencyPolicy.literals).pipe(
    Flag.withDescription("What a run does while an earlier one goes on"),
    Flag.optional
  ),
  timeoutSeconds: Flag.Int("run-timeout").pipe(
    Flag.withDescription("Seconds that one attempt may take"),
    Flag.optional
  )
}
type Settings = Given<Command.Command.Config.Infer<typeof settings>>

const targetOf = Effect.fnUntraced(function* ({
  path,
  method,
  queue,
  body
}: NonNullable<Settings["target"]>) {
  const carried = body === undefined ? {} : { body: yield* jsonOf("--body", body) }
  if (path !== undefined && queue === undefined)
    return { kind: "http" as const, path, ...(method === undefined ? {} : { method }), ...carried }
  if (queue !== undefined && path === undefined) return { kind: "queue" as const, queue, ...carried }
  return yield* failure("Say either --path or --queue", exitCodes.usage)
})

const create = command(
  "create",
  {
    ...waiting,
    name,
    schedule: Argument.String("schedule").pipe(
      Argument.withDescription('Five fields in quotes, such as "30 2 * * *"')
    ),
    settings
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { target, ...others } = given(flags.settings)
      if (target === undefined) return yield* failure("Say --path or --queue", exitCodes.usage)
      const { name, schedule } = flags
      const payload = { name, schedule, target: yield* targetOf(target), ...others }
      const made = yield* call(client.asMember.crons.create({ ...(yield* at), headers: {}, payload }))
      if (flags.wait) yield* waitForOne(made.id, flags)
      yield* asJson
        ? json(made)
        : say(`${made.name} ${paint("green", "is there")}; it runs next at ${made.nextRunAt ?? "no time"}`)
    })
).pipe(
  Command.withDescription("Create a cron job"),
  Command.withExamples([
    {
      command: 'svc crons create shop nightly "30 2 * * *" --path /jobs/nightly --timezone Europe/Berlin',
      description: "Every night"
    }
  ])
)

const change = update({
  settings: { schedule: Flag.String("schedule").pipe(Flag.optional), ...settings },
  waits: true,
  payload: ({ target, ...others }) =>
    Effect.map(target === undefined ? Effect.undefined : targetOf(target), (target) => ({
      ...others,
      ...(target === undefined ? {} : { target })
    })),
  send: ({ asMember }, request) => asMember.crons.update(request),
  changed: ({ body }) => body
})

const turn = <const Word extends "on" | "off">(word: Word) =>
  on(word, {}, ({ name, one }, { client, json: asJson }) =>
    Effect.gen(function* () {
      const payload = { enabled: word === "on" }
      const { body } = yield* call(client.asMember.crons.update({ ...one, payload }))
      yield* asJson ? json(body) : say(`${name} is switched ${word}`)
    })
  ).pipe(Command.withDescription(`Switch a cron job ${word}`))

const trigger = on("trigger", waiting, ({ one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    let run = yield* call(client.asMember.crons.trigger(one))
    const deadline = (yield* Clock.currentTimeMillis) + flags.timeout * 1000
    while (flags.wait && run.finishedAt === null) {
      if ((yield* Clock.currentTimeMillis) > deadline)
        return yield* failure(`The run ${run.id} goes on; svc crons runs shows it`, exitCodes.timeout)
      yield* Effect.sleep("500 millis")
      run = yield* call(client.asMember.crons.getRun({ params: { ...one.params, runId: run.id } }))
    }
    const why = run.reason === null ? "" : `: ${run.reason}`
    yield* asJson ? json(run) : out(`${run.id} ${run.status}${why} (${run.attempts.length} attempts)`)
    if (run.finishedAt !== null && run.status !== "succeeded") return yield* failure("")
  })
).pipe(Command.withDescription("Run a cron job now; exits with 1 if the run does not succeed"))

const runs = on("runs", {}, ({ one: { params } }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const { items } = yield* call(client.asMember.crons.listRuns({ params, query: { limit: 50 } }))
    if (asJson) return yield* json(items)
    yield* out(
      table(
        ["SCHEDULED", "STATUS", "ATTEMPTS", "WHY", "ID"],
        items.map((run) => [
          run.scheduledAt,
          run.status,
          String(run.attempts.length),
          run.reason ?? "",
          run.id
        ])
      )
    )
  })
).pipe(Command.withDescription("The last 50 runs, newest first"))

const rm = remove({
  warning: (name) => `This deletes the cron job "${name}" and the record of its runs.`,
  send: ({ asMember }, one) => asMember.crons.delete(one),
  address: ({ name }, { project, environment }) => `${project}/${environment}/Cron/${name}`
}).pipe(Command.withDescription("Delete a cron job and its runs"))

export const crons = Command.make("crons").pipe(
  Command.withDescription("Calls of the app by a schedule"),
  Command.withSubcommands([list, show, create, change, turn("on"), turn("off"), trigger, runs, rm])
)
