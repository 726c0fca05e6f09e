/** `svc alerts`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import type { AlertInput } from "#schemas/alert.ts"
import { Operator, Severity } from "#schemas/alert.ts"
import { SignalName } from "#schemas/signal.ts"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { waiting } from "#src/cli/flags.ts"
import { json, out, paint, say, table } from "#src/cli/output.ts"
import { inProject, resourceCommands } from "#src/cli/resource-commands.ts"
import { type Given, given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"
import type { AlertView } from "./api.ts"
import { boundText, resourceText, valueText } from "./text.ts"
import type { AlertState } from "./words.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the alert"))
const { command, on, ls, get, remove } = resourceCommands({
  scope: inProject,
  noun: "alert",
  plural: "alerts",
  argument: name,
  list: ({ asMember }, at) => asMember.alerts.list(at),
  nameOf: (alert) => alert.name,
  one: ({ params }, { id }) => ({ params: { ...params, alertId: id }, headers: {} })
})

type View = (typeof AlertView)["Type"]

const paintedState = (state: AlertState): string =>
  state === "firing"
    ? paint("red", state)
    : state === "ok"
      ? paint("green", state)
      : state === "pending"
        ? paint("yellow", state)
        : paint("gray", state)

const scopeText = ({ scope }: View): string => {
  const named = [
    ["database", scope.database],
    ["queue", scope.queue],
    ["cron job", scope.cron]
  ].flatMap(([what, name]) => (name === null ? [] : [`${what} ${name}`]))
  const place = scope.environment === null ? "the whole project" : scope.environment
  return named.length === 0 ? place : `${named.join(", ")} of ${place}`
}
const conditionOf = ({ condition, threshold }: View) =>
  `${condition.signal} ${boundText(condition.signal, condition.operator, threshold)}`
const measuredText = ({ condition, measured, unavailable }: View) =>
  measured === null
    ? `nothing is measured${unavailable === null ? "" : `: ${unavailable}`}`
    : `${valueText(condition.signal, measured.value)} (${resourceText(measured.resource)})`

const list = ls({
  columns: {
    NAME: (alert) => alert.name,
    STATE: ({ enabled, state }) => (enabled ? paintedState(state) : "switched off"),
    SEVERITY: ({ severity }) => severity,
    CONDITION: conditionOf,
    SCOPE: scopeText,
    NOW: measuredText
  }
})

const facts = (alert: View): ReadonlyArray<readonly [string, string]> => [
  ["Name", alert.name],
  ["Id", alert.id],
  ["Switched on", alert.enabled ? "yes" : "no"],
  ["State", `${paintedState(alert.state)}${alert.since === null ? "" : ` since ${alert.since}`}`],
  ["Severity", alert.severity],
  ["Condition", `${conditionOf(alert)} for ${alert.condition.durationSeconds} s`],
  ["Scope", scopeText(alert)],
  ["Now", measuredText(alert)],
  [
    "Channels",
    alert.channels
      .map(({ kind, destination }) => (destination === null ? kind : `${kind} ${destination}`))
      .join(", ") || "none"
  ],
  ["Cooldown", `${alert.cooldownSeconds} s`],
  ...(alert.incident === null
    ? []
    : [
        ["Told", alert.incident.notifiedAt ?? "to nobody yet"] as const,
        ["Acknowledged", alert.incident.acknowledgedAt ?? "by nobody"] as const
      ]),
  ...(alert.silence === null
    ? []
    : [["Silenced", `until ${alert.silence.until}: ${alert.silence.reason ?? "no reason given"}`] as const])
]

const named = (what: string) =>
  Flag.String(what).pipe(Flag.withDescription(`Watch this ${what} alone`), Flag.optional)
const settings = {
  enabled: Flag.Boolean("enabled").pipe(
    Flag.withDescription("Whether it watches; --no-enabled switches it off"),
    Flag.optional
  ),
  severity: Flag.Literals("severity", Severity.literals).pipe(Flag.optional),
  scope: {
    environment: Flag.String("environment").pipe(
      Flag.withAlias("e"),
      Flag.withDescription("Watch resources of this environment alone"),
      Flag.optional
    ),
    database: named("database"),
    queue: named("queue"),
    cron: named("cron")
  },
  condition: {
    signal: Flag.Literals("signal", SignalName.literals).pipe(Flag.optional),
    operator: Flag.Literals("operator", Operator.literals).pipe(
      Flag.withDescription("How the value stands to the threshold (default gte)"),
      Flag.optional
    ),
    threshold: Flag.Finite("threshold").pipe(
      Flag.withDescription("In the unit of the signal; some signals have a usual one"),
      Flag.optional
    ),
    durationSeconds: Flag.Int("for").pipe(
      Flag.withDescription("Seconds that the condition has to hold (default 60)"),
      Flag.optional
    )
  },
  channels: {
    mail: Flag.String("mail").pipe(
      Flag.withDescription('Address of a member, or "admins"; may be given several times'),
      Flag.atLeast(0)
    ),
    webhook: Flag.Boolean("webhook").pipe(
      Flag.withDescription("Tell the organization's webhooks"),
      Flag.optional
    )
  },
  cooldownSeconds: Flag.Int("cooldown").pipe(
    Flag.withDescription("Seconds in which it is not told again (default 300)"),
    Flag.optional
  )
}
type Settings = Given<Command.Command.Config.Infer<typeof settings>>

type Channels = NonNullable<(typeof AlertInput)["Type"]["channels"]>
/** What is not given stays; the history is kept in any case. */
const channelsOf = (
  { mail, webhook }: NonNullable<Settings["channels"]>,
  before: Channels = []
): Channels => {
  const kept = (kind: Channels[number]["kind"]) => before.filter((channel) => channel.kind === kind)
  const mails = mail?.map((address) => ({
    kind: "mail" as const,
    destination: address === "admins" ? null : address
  }))
  const hooks = webhook ? [{ kind: "webhook" as const, destination: null }] : []
  return [
    { kind: "dashboard", destination: null },
    ...(mails ?? kept("mail")),
    ...(webhook === undefined ? kept("webhook") : hooks)
  ]
}

const set = command("set", { ...waiting, name, settings }, ({ at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { asMember } = yield* Client
    const place = yield* at
    const { scope, condition, channels, ...others } = given(flags.settings)
    const found = yield* call(asMember.alerts.list(place))
    const before = found.find(({ id, name }) => id === flags.name || name === flags.name)
    const signal = condition?.signal ?? before?.condition.signal
    const severity = others.severity ?? before?.severity
    if (signal === undefined || severity === undefined)
      return yield* failure("Say --signal and --severity of a new alert", exitCodes.usage)
    // Another signal has another threshold.
    const kept = before?.condition.signal === signal ? before.condition : {}
    const payload = {
      ...others,
      severity,
      scope: { ...before?.scope, ...scope },
      condition: { ...kept, ...condition, signal },
      ...(channels === undefined ? {} : { channels: channelsOf(channels, before?.channels) })
    }
    const after =
      before === undefined
        ? yield* call(
            asMember.alerts.create({ ...place, headers: {}, payload: { ...payload, name: flags.name } })
          )
        : (yield* call(
            asMember.alerts.update({ params: { ...place.params, alertId: before.id }, headers: {}, payload })
          )).body
    if (flags.wait) yield* waitForOne(after.id, flags)
    yield* asJson
      ? json(after)
      : say(`${after.name} ${paint("green", "is set")}: ${conditionOf(after)}, ${scopeText(after)}`)
  })
).pipe(
  Command.withDescription("Create an alert, or change what is given of it"),
  Command.withExamples([
    {
      command: 'svc alerts set shop "Disk full" --signal storage.capacity --severity critical --mail admins',
      description: "For every server of the project, by the usual threshold"
    },
    {
      command:
        "svc alerts set shop backlog --signal queue.backlog --queue jobs --threshold 500 --for 300 --severity warning --webhook",
      description: "For one queue of production"
    }
  ])
)

const minutes = /^(\d{1,6})([smhd])$/
const secondsOf: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 }

const silence = on(
  "silence",
  {
    for: Flag.String("for").pipe(
      Flag.withDescription("How long, such as 30m, 4h or 2d; 0s ends a silence"),
      Flag.withDefault("1h")
    ),
    reason: Flag.String("reason").pipe(Flag.withDescription("For those who wonder"), Flag.optional)
  },
  ({ name, one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const [, count, unit] = minutes.exec(flags.for) ?? []
      if (count === undefined || unit === undefined)
        return yield* failure("--for takes a time such as 30m, 4h or 2d", exitCodes.usage)
      const { reason } = given({ reason: flags.reason })
      const payload = {
        durationSeconds: Number(count) * (secondsOf[unit] ?? 1),
        ...(reason === undefined ? {} : { reason })
      }
      const after = yield* call(client.asMember.alerts.silence({ params: one.params, payload }))
      yield* asJson
        ? json(after)
        : say(
            after.silence === null
              ? `${name} is told again`
              : `${name} is silenced until ${after.silence.until}`
          )
    })
).pipe(Command.withDescription("Tell nobody that an alert fires, for a while"))

const acknowledge = on("ack", {}, ({ name, one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const after = yield* call(client.asMember.alerts.acknowledge({ params: one.params }))
    yield* asJson ? json(after) : say(`${name} is acknowledged`)
  })
).pipe(Command.withDescription("Say that somebody sees to an alert that fires"))

const history = on("history", {}, ({ item, one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const { items } = yield* call(
      client.asMember.alerts.history({ params: one.params, query: { limit: 50 } })
    )
    if (asJson) return yield* json(items)
    if (items.length === 0) return yield* say(`Nothing has become of ${item.name} yet`)
    yield* out(
      table(
        ["AT", "CHANGE", "VALUE", "RESOURCE", "WHO OR WHY", "TOLD"],
        items.map((entry) => [
          entry.at,
          entry.change,
          entry.value === null ? "" : valueText(item.condition.signal, entry.value),
          entry.resource === null ? "" : resourceText(entry.resource),
          [entry.actor, entry.reason].filter((text) => text !== null).join(": "),
          entry.deliveries
            .map(({ channel, destination, state }) => `${channel} ${destination ?? "admins"} ${state}`)
            .join(", ")
        ])
      )
    )
  })
).pipe(Command.withDescription("The last 50 changes of an alert, newest first"))

const rm = remove({
  warning: (name) => `This deletes the alert "${name}" and its history.`,
  send: ({ asMember }, one) => asMember.alerts.delete(one),
  address: ({ name }, { project }) => `${project}/Alert/${name}`
}).pipe(Command.withDescription("Delete an alert and its history"))

export const alerts = Command.make("alerts").pipe(
  Command.withDescription("Rules about what is measured, and telling people when one is met"),
  Command.withSubcommands([list, get(facts), set, rm, silence, acknowledge, history])
)
