/** `svc crons`. */

import * as Clock from "effect/Clock"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { ConcurrencyPolicy } from "#schemas/cron.ts"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, at, confirmName, online, type Place, place, waiting, yes } from "./flags.ts"
import { jsonOf } from "./json-text.ts"
import { facts, json, out, paint, say, table } from "./output.ts"
import { deleted } from "./service.ts"
import { waitForOne } from "./wait.ts"

const cronName = Argument.String("name").pipe(Argument.withDescription("Name or id of the cron job"))
const find = Effect.fnUntraced(function* (flags: Place & { readonly name: string }) {
  const { asMember, org } = yield* Client
  const crons = yield* call(asMember.crons.list(at(org, flags)))
  const found =
    crons.find(({ id }) => id === flags.name) ??
    // What is being deleted gives way to what took its name.
    crons.filter(({ name }) => name === flags.name).sort((a, b) => b.createdAt.localeCompare(a.createdAt))[0]
  return (
    found ??
    (yield* failure(
      `There is no cron job "${flags.name}" in ${flags.project}/${flags.environment}`,
      exitCodes.notFound
    ))
  )
})
const one = (org: string, flags: Place, id: string) => ({
  params: { orgId: org, projectId: flags.project, cronId: id },
  headers: {}
})

const ls = Command.make("ls", { ...place, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const crons = yield* call(asMember.crons.list(at(org, flags)))
      if (flags.json) return yield* json(crons)
      if (crons.length === 0)
        return yield* say(`There are no cron jobs in ${flags.project}/${flags.environment}`)
      yield* out(
        table(
          ["NAME", "SCHEDULE", "TIME ZONE", "LAST RUN", "NEXT RUN"],
          crons.map(({ name, schedule, timezone, enabled, lastRunAt, nextRunAt }) => [
            name,
            schedule,
            timezone,
            lastRunAt ?? "never",
            enabled ? (nextRunAt ?? "never") : "switched off"
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List cron jobs"))

const targetText = (target: Effect.Success<ReturnType<typeof find>>["target"]) =>
  target.kind === "http" ? `${target.method} ${target.path}` : `queue ${target.queue}`

const get = Command.make("get", { ...place, json: asJson, name: cronName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const cron = yield* find(flags)
      if (flags.json) return yield* json(cron)
      const { retry } = cron
      yield* out(
        facts([
          ["Name", cron.name],
          ["Id", cron.id],
          ["Environment", cron.environment],
          ["Schedule", `${cron.schedule} (${cron.timezone})`],
          ["Switched on", cron.enabled ? "yes" : "no"],
          ["Target", targetText(cron.target)],
          [
            "Attempts",
            `${retry.maxAttempts}, ${retry.initialDelaySeconds} to ${retry.maxDelaySeconds} s apart, ${cron.timeoutSeconds} s each`
          ],
          ["Beside another run", cron.concurrencyPolicy],
          ["Last run", cron.lastRunAt ?? "never"],
          ["Next run", cron.nextRunAt ?? "never"]
        ])
      )
    })
  )
).pipe(Command.withDescription("Show a cron job"))

const settings = {
  timezone: Flag.String("timezone").pipe(Flag.withDescription("IANA name (default UTC)"), Flag.optional),
  path: Flag.String("path").pipe(
    Flag.withDescription("Path of the app that is called, such as /jobs/nightly"),
    Flag.optional
  ),
  method: Flag.Literals("method", ["POST", "PUT", "PATCH"]).pipe(Flag.optional),
  queue: Flag.String("queue").pipe(
    Flag.withDescription("Queue that is published to, instead of a path"),
    Flag.optional
  ),
  body: Flag.String("body").pipe(Flag.withDescription("JSON that every run carries"), Flag.optional),
  attempts: Flag.Int("attempts").pipe(Flag.withDescription("1 to 10 in all"), Flag.optional),
  concurrency: Flag.Literals("concurrency", ConcurrencyPolicy.literals).pipe(
    Flag.withDescription("What a run does while an earlier one goes on"),
    Flag.optional
  ),
  timeoutSeconds: Flag.Int("run-timeout").pipe(
    Flag.withDescription("Seconds that one attempt may take"),
    Flag.optional
  )
}
interface Settings {
  readonly timezone: Option.Option<string>
  readonly path: Option.Option<string>
  readonly method: Option.Option<"POST" | "PUT" | "PATCH">
  readonly queue: Option.Option<string>
  readonly body: Option.Option<string>
  readonly attempts: Option.Option<number>
  readonly concurrency: Option.Option<typeof ConcurrencyPolicy.Type>
  readonly timeoutSeconds: Option.Option<number>
}
const given = <K extends string, A>(key: K, value: Option.Option<A>): { readonly [P in K]?: A } =>
  Option.isSome(value) ? ({ [key]: value.value } as { readonly [P in K]: A }) : {}

const settingsOf = (flags: Settings) => ({
  ...given("timezone", flags.timezone),
  ...given("concurrencyPolicy", flags.concurrency),
  ...given("timeoutSeconds", flags.timeoutSeconds),
  ...(Option.isSome(flags.attempts) ? { retry: { maxAttempts: flags.attempts.value } } : {})
})

/** Undefined: no flag is about the target. */
const targetOf = Effect.fnUntraced(function* (flags: Settings) {
  const body = Option.isNone(flags.body)
    ? {}
    : {
        body: yield* jsonOf("--body", flags.body.value)
      }
  if (Option.isSome(flags.path) === Option.isSome(flags.queue)) {
    if (Option.isNone(flags.path) && Option.isNone(flags.body) && Option.isNone(flags.method))
      return undefined
    return yield* failure("Say either --path or --queue", exitCodes.usage)
  }
  return Option.isSome(flags.queue)
    ? ({ kind: "queue", queue: flags.queue.value, ...body } as const)
    : ({
        kind: "http",
        path: Option.getOrElse(flags.path, () => "/"),
        ...given("method", flags.method),
        ...body
      } as const)
})

const create = Command.make(
  "create",
  {
    ...place,
    ...waiting,
    json: asJson,
    name: cronName,
    schedule: Argument.String("schedule").pipe(
      Argument.withDescription('Five fields in quotes, such as "30 2 * * *"')
    ),
    ...settings
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const target = yield* targetOf(flags)
        if (target === undefined) return yield* failure("Say --path or --queue", exitCodes.usage)
        const { name, schedule } = flags
        const payload = { name, schedule, target, ...settingsOf(flags) }
        const made = yield* call(asMember.crons.create({ ...at(org, flags), headers: {}, payload }))
        if (flags.wait) yield* waitForOne(made.id, flags)
        yield* flags.json
          ? json(made)
          : say(`${made.name} ${paint("green", "is there")}; it runs next at ${made.nextRunAt ?? "no time"}`)
      })
    )
).pipe(
  Command.withDescription("Create a cron job"),
  Command.withExamples([
    {
      command: 'svc crons create shop nightly "30 2 * * *" --path /jobs/nightly --timezone Europe/Berlin',
      description: "Every night"
    }
  ])
)

const update = Command.make(
  "update",
  {
    ...place,
    ...waiting,
    json: asJson,
    name: cronName,
    schedule: Flag.String("schedule").pipe(Flag.optional),
    ...settings
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const target = yield* targetOf(flags)
        const payload = {
          ...settingsOf(flags),
          ...given("schedule", flags.schedule),
          ...(target === undefined ? {} : { target })
        }
        if (Object.keys(payload).length === 0)
          return yield* failure("Say what to change; --help lists it", exitCodes.usage)
        const { id, name } = yield* find(flags)
        const { body } = yield* call(asMember.crons.update({ ...one(org, flags, id), payload }))
        if (flags.wait) yield* waitForOne(id, flags)
        yield* flags.json ? json(body) : say(`${name} ${paint("green", "is changed")}`)
      })
    )
).pipe(Command.withDescription("Change a cron job"))

const turn = (word: "on" | "off") =>
  Command.make(word, { ...place, json: asJson, name: cronName }, (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { id, name } = yield* find(flags)
        const payload = { enabled: word === "on" }
        const { body } = yield* call(asMember.crons.update({ ...one(org, flags, id), payload }))
        yield* flags.json ? json(body) : say(`${name} is switched ${word}`)
      })
    )
  ).pipe(Command.withDescription(`Switch a cron job ${word}`))

type Run = Effect.Success<ReturnType<typeof readRun>>
const readRun = Effect.fnUntraced(function* (flags: Place, cronId: string, runId: string) {
  const { asMember, org } = yield* Client
  return yield* call(
    asMember.crons.getRun({ params: { orgId: org, projectId: flags.project, cronId, runId } })
  )
})
const runText = (run: Run) =>
  `${run.id} ${run.status}${run.reason === null ? "" : `: ${run.reason}`} (${run.attempts.length} attempts)`

const trigger = Command.make("trigger", { ...place, ...waiting, json: asJson, name: cronName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id } = yield* find(flags)
      let run: Run = yield* call(asMember.crons.trigger(one(org, flags, id)))
      const deadline = (yield* Clock.currentTimeMillis) + flags.timeout * 1000
      while (flags.wait && run.finishedAt === null) {
        if ((yield* Clock.currentTimeMillis) > deadline)
          return yield* failure(`The run ${run.id} goes on; svc crons runs shows it`, exitCodes.timeout)
        yield* Effect.sleep("500 millis")
        run = yield* readRun(flags, id, run.id)
      }
      yield* flags.json ? json(run) : out(runText(run))
      if (run.finishedAt !== null && run.status !== "succeeded") return yield* failure("")
    })
  )
).pipe(Command.withDescription("Run a cron job now; exits with 1 if the run does not succeed"))

const runs = Command.make("runs", { ...place, json: asJson, name: cronName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id } = yield* find(flags)
      const { params } = one(org, flags, id)
      const { items } = yield* call(asMember.crons.listRuns({ params, query: { limit: 50 } }))
      if (flags.json) return yield* json(items)
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
  )
).pipe(Command.withDescription("The last 50 runs, newest first"))

const rm = Command.make("delete", { ...place, ...waiting, json: asJson, name: cronName, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id, name } = yield* find(flags)
      yield* confirmName(`This deletes the cron job "${name}" and the record of its runs.`, name, flags.yes)
      yield* call(asMember.crons.delete(one(org, flags, id)))
      yield* deleted(id, `${flags.project}/${flags.environment}/Cron/${name}`, flags)
    })
  )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a cron job and its runs"))

export const crons = Command.make("crons").pipe(
  Command.withDescription("Calls of the app by a schedule"),
  Command.withSubcommands([ls, get, create, update, turn("on"), turn("off"), trigger, runs, rm])
)
