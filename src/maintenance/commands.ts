/** `svc maintenance`: how a project is looked after, what was found, and what was done about it. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import { maintenanceCategories, remediations } from "#schemas/maintenance.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, resourcesOf, waiting, yes } from "#src/cli/flags.ts"
import { facts, json, out, paint, say, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { commandIn, inProject } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"
import type { MaintenanceFindingView, MaintenanceRunView, MaintenanceView } from "./api.ts"

const command = commandIn(inProject)

type Settings = typeof MaintenanceView.Type
type Run = typeof MaintenanceRunView.Type
type Finding = typeof MaintenanceFindingView.Type

const orAll = (names: ReadonlyArray<string>) => (names.length === 0 ? "all" : names.join(", "))

const settingsFacts = (settings: Settings) =>
  facts([
    ["Runs", settings.enabled ? settings.schedule : "not by itself"],
    ["Next run", settings.nextRunAt ?? ""],
    ["Categories", orAll(settings.categories)],
    ["Environments", orAll(settings.environments)],
    [
      "By itself",
      settings.autoRemediation.enabled
        ? `${settings.autoRemediation.allowedOperationIds.join(", ")} (risk: ${settings.autoRemediation.maximumRisk}; ${settings.autoRemediation.maxActionsPerRun} a run)`
        : "nothing"
    ],
    ["Open findings", String(settings.openFindings)]
  ])

const get = command("get", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const settings = yield* call(client.asMember.maintenance.get(yield* at))
    if (asJson) return yield* json(settings)
    if (settings.status === null)
      return yield* say("Nobody looks after this project; set it up: svc maintenance set")
    yield* out(settingsFacts(settings))
  })
).pipe(Command.withDescription("Show how a project is looked after"))

const several = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(`${description}; may be given several times, and all of them replace those before`),
    Flag.atLeast(0)
  )

const set = command(
  "set",
  {
    ...waiting,
    settings: {
      enabled: Flag.Boolean("enabled").pipe(
        Flag.withDescription("Look by itself (--no-enabled: only when it is told to)"),
        Flag.optional
      ),
      schedule: Flag.Literals("schedule", ["hourly", "daily", "weekly"]).pipe(
        Flag.withDescription("How often it looks"),
        Flag.optional
      ),
      categories: Flag.Literals("category", maintenanceCategories).pipe(
        Flag.withDescription("What it looks at; may be given several times"),
        Flag.atLeast(0)
      ),
      environments: several("environment", "An environment that it looks at")
    },
    all: Flag.Boolean("all").pipe(
      Flag.withDescription("Look at all categories and environments again"),
      Flag.withDefault(false)
    ),
    remediation: {
      enabled: Flag.Boolean("auto").pipe(
        Flag.withDescription("Carry out what is allowed without being asked (--no-auto: nothing)"),
        Flag.optional
      ),
      maximumRisk: Flag.Literals("maximum-risk", ["read", "write"]).pipe(
        Flag.withDescription("The highest risk of an operation that is carried out"),
        Flag.optional
      ),
      allowedOperationIds: Flag.Literals("allow", remediations).pipe(
        Flag.withDescription("An operation that may be carried out; may be given several times"),
        Flag.atLeast(0)
      ),
      maxActionsPerRun: Flag.Int("max-actions").pipe(
        Flag.withDescription("How many operations a run carries out at most"),
        Flag.optional
      )
    }
  },
  ({ client: { asMember }, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const settings = given(flags.settings)
      const remediation = given(flags.remediation)
      const everything = flags.all ? { categories: [], environments: [] } : {}
      const place = yield* at
      // What is not named stays as it is; who names nothing sets it up with what is usual.
      const before = yield* call(asMember.maintenance.get(place))
      const payload = {
        enabled: before.status === null || before.enabled,
        schedule: before.schedule,
        categories: before.categories,
        environments: before.environments,
        ...everything,
        ...settings,
        autoRemediation: { ...before.autoRemediation, ...remediation }
      }
      const after = yield* call(asMember.maintenance.set({ ...place, payload }))
      const found = yield* resourcesOf({ kind: "Maintenance", project: where.project })
      const record = found.find(({ deleting }) => !deleting)
      if (flags.wait && record !== undefined) yield* waitForOne(record.uid, flags)
      yield* asJson ? json(after) : out(settingsFacts(after))
    })
).pipe(
  Command.withDescription("Say how a project is looked after"),
  Command.withExamples([
    { command: "svc maintenance set shop --schedule daily", description: "Look at everything once a day" },
    {
      command: "svc maintenance set shop --auto --maximum-risk write --allow resources.retry",
      description: "And retry what is stuck"
    }
  ])
)

const unset = command("unset", { yes }, ({ client, at, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    const place = yield* at
    yield* confirmName(
      `This ends looking after "${where.project}" and forgets what was found.`,
      where.project,
      flags.yes
    )
    yield* call(client.asMember.maintenance.delete({ ...place, headers: {} }))
    yield* asJson ? json({ deleted: true }) : say(`Nobody looks after ${where.project} any more`)
  })
).pipe(Command.withDescription("Look after a project no more"))

const colours = { info: "gray", warning: "yellow", critical: "red" } as const

const findingText = ({ id, severity, category, summary, risk, remedy, state, dismissedReason }: Finding) =>
  [
    `${paint(colours[severity], severity)}  ${category}  ${summary}`,
    `  ${risk}`,
    ...(remedy === null ? [] : [`  ${remedy.command}`]),
    ...(state === "dismissed" ? [`  dismissed: ${dismissedReason ?? ""}`] : []),
    `  ${id}`
  ].join("\n")

const findings = command(
  "findings",
  {
    filter: {
      state: Flag.Literals("state", ["open", "dismissed", "resolved"]).pipe(
        Flag.withDescription("Which ones (default: open)"),
        Flag.withDefault("open")
      ),
      category: Flag.Literals("category", maintenanceCategories).pipe(
        Flag.withDescription("Only of this category"),
        Flag.optional
      )
    },
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(50))
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const { state, category } = flags.filter
      const filter = { state, ...(Option.isNone(category) ? {} : { category: category.value }) }
      const items = yield* itemsOf(
        (page) => call(client.asMember.maintenance.listFindings({ params, query: { ...filter, ...page } })),
        flags.limit
      )
      if (asJson) return yield* json(items)
      if (items.length === 0) return yield* say(`There are no ${state} findings in ${where.project}`)
      yield* out(items.map(findingText).join("\n\n"))
    })
).pipe(Command.withDescription("List what was found, with the commands that would mend it"))

const finding = Argument.String("finding").pipe(Argument.withDescription("Id of the finding"))

const dismiss = command(
  "dismiss",
  { finding, reason: Flag.String("reason").pipe(Flag.withDescription("Why; shown to everybody")) },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const dismissed = yield* call(
        client.asMember.maintenance.dismiss({
          params: { ...params, findingId: flags.finding },
          headers: {},
          payload: { reason: flags.reason }
        })
      )
      yield* asJson ? json(dismissed) : say(`Dismissed until it changes: ${dismissed.summary}`)
    })
).pipe(Command.withDescription("Leave a finding as it is, until it changes"))

const reopen = command("reopen", { finding }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params } = yield* at
    const request = { params: { ...params, findingId: flags.finding }, headers: {} }
    const reopened = yield* call(client.asMember.maintenance.reopen(request))
    yield* asJson ? json(reopened) : say(`Open again: ${reopened.summary}`)
  })
).pipe(Command.withDescription("Take the dismissal of a finding back"))

const runFacts = (run: Run) =>
  facts([
    ["Id", run.id],
    ["State", run.status],
    ["Begun", run.startedAt ?? ""],
    ["Ended", run.finishedAt ?? ""],
    ["New findings", String(run.opened)],
    ["Resolved", String(run.resolved)],
    ...run.categories.map(
      ({ category, findings, problem }) => [category, problem ?? String(findings)] as const
    ),
    ...run.actions.map(
      ({ command, status, reason }) =>
        [`${status}:`, `${command}${reason === null ? "" : ` (${reason})`}`] as const
    ),
    ...(run.reason === null ? [] : [["Reason", run.reason] as const])
  ])

const isOver = ({ finishedAt, actions }: Run) =>
  finishedAt !== null && actions.every((action) => action.finishedAt !== null)

const run = command("run", { ...waiting }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params } = yield* at
    let asked = yield* call(client.asMember.maintenance.run({ params, headers: {} }))
    const look = Effect.suspend(() =>
      call(client.asMember.maintenance.getRun({ params: { ...params, runId: asked.id } }))
    )
    if (flags.wait) {
      asked = yield* look.pipe(
        Effect.repeat({ until: isOver, schedule: Schedule.spaced("500 millis") }),
        Effect.timeoutOrElse({
          duration: flags.timeout * 1000,
          orElse: () =>
            Effect.fail(failure(`The run was not over within ${flags.timeout} s`, exitCodes.timeout))
        })
      )
    }
    yield* asJson ? json(asked) : out(runFacts(asked))
  })
).pipe(Command.withDescription("Look at a project now, and show what came of it"))

const runs = command(
  "runs",
  { limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(20)) },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const items = yield* itemsOf(
        (query) => call(client.asMember.maintenance.listRuns({ params, query })),
        flags.limit
      )
      if (asJson) return yield* json(items)
      if (items.length === 0) return yield* say(`Nobody has looked at ${where.project} yet`)
      yield* out(
        table(
          ["ID", "BEGUN BY", "STATE", "AT", "NEW", "RESOLVED", "ACTIONS"],
          items.map((one) => [
            one.id,
            one.trigger,
            one.status,
            one.createdAt,
            String(one.opened),
            String(one.resolved),
            String(one.actions.length)
          ])
        )
      )
    })
).pipe(Command.withDescription("List runs, newest first"))

const showRun = command(
  "show-run",
  { run: Argument.String("run").pipe(Argument.withDescription("Id of the run")) },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const found = yield* call(
        client.asMember.maintenance.getRun({ params: { ...params, runId: flags.run } })
      )
      yield* asJson ? json(found) : out(runFacts(found))
    })
).pipe(Command.withDescription("Show a run, with what it did"))

export const maintenance = Command.make("maintenance").pipe(
  Command.withDescription("Looking after a project on a schedule"),
  Command.withSubcommands([get, set, unset, findings, dismiss, reopen, run, runs, showRun])
)
