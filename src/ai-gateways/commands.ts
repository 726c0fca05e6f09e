/** `svc ai`: gateways, their keys, and what they have spent. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { AiModel } from "#schemas/ai-gateway.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { facts, json, out, paint, say, table } from "#src/cli/output.ts"
import { inEnvironment, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the gateway"))
const { command, on, ls, update, remove } = resourceCommands({
  scope: inEnvironment,
  noun: "AI gateway",
  plural: "AI gateways",
  argument: name,
  list: ({ asMember }, at) => asMember.aiGateways.list(at),
  nameOf: (gateway) => gateway.name,
  one: ({ params }, { id }) => ({ params: { ...params, gatewayId: id }, headers: {} })
})

const model = Flag.Literals("model", AiModel.literals).pipe(
  Flag.withDescription("A model that calls may name; may be given several times")
)
const budget = Flag.Finite("budget").pipe(
  Flag.withDescription("US dollars that calls may cost in a month (UTC)")
)
const optional = {
  timeoutMs: Flag.Int("timeout-ms").pipe(
    Flag.withDescription("How long a call may wait for the first part of its answer"),
    Flag.optional
  ),
  maxRetries: Flag.Int("retries").pipe(
    Flag.withDescription("Tries after the first one, before the answer has begun"),
    Flag.optional
  ),
  redactPrompts: Flag.Boolean("redact-prompts").pipe(
    Flag.withDescription("Keep prompts and answers out of logs, traces and tables (the default)"),
    Flag.optional
  )
}

/** At least two digits after the point, and as many more as it has. */
const usd = (amount: number) => `$${amount.toFixed(9).replace(/0{1,7}$/, "")}`

const list = ls({
  columns: {
    NAME: (gateway) => gateway.name,
    STATUS: ({ status }) => status,
    MODELS: ({ allowedModels }) => allowedModels.join(","),
    SPENT: ({ usage }) => usd(usage.spentUsd),
    BUDGET: ({ monthlyBudgetUsd }) => usd(monthlyBudgetUsd)
  }
})

const show = on("get", {}, ({ item: gateway }, { json: asJson }) => {
  if (asJson) return json(gateway)
  const { usage } = gateway
  const ready = gateway.conditions.find(({ type }) => type === "Ready")
  return out(
    facts([
      ["Name", gateway.name],
      ["Id", gateway.id],
      ["Environment", gateway.environment],
      ["Status", `${gateway.status}${ready === undefined ? "" : `: ${ready.message}`}`],
      ["Models", gateway.allowedModels.join(", ")],
      ["Budget", `${usd(gateway.monthlyBudgetUsd)} a month`],
      ["Spent", `${usd(usage.spentUsd)} in ${usage.requests} calls; ${usd(usage.remainingUsd)} left`],
      ["Timeout", `${gateway.timeoutMs} ms`],
      ["Retries", String(gateway.maxRetries)],
      ["Prompts", gateway.redactPrompts ? "kept out of logs" : "may be in logs"],
      ["Created", gateway.createdAt]
    ])
  )
}).pipe(Command.withDescription("Show an AI gateway and what it has spent this month"))

// Calls go by what is stored: there is nothing to wait for.
const create = command(
  "create",
  { name, model: model.pipe(Flag.atLeast(0)), budget, optional },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = {
        name: flags.name,
        allowedModels: flags.model.length === 0 ? AiModel.literals : flags.model,
        monthlyBudgetUsd: flags.budget,
        ...given(flags.optional)
      }
      const made = yield* call(client.asMember.aiGateways.create({ ...(yield* at), headers: {}, payload }))
      if (asJson) return yield* json(made)
      yield* say(`${made.name} ${paint("green", "is created")}`)
      yield* say(`Make a key: svc ai keys create ${where.project} ${made.name} <key> -e ${where.environment}`)
    })
).pipe(
  Command.withDescription("Create an AI gateway (for all models unless --model names some)"),
  Command.withExamples([
    { command: "svc ai create shop ai --budget 50", description: "At most 50 dollars a month" }
  ])
)

const change = update({
  settings: {
    allowedModels: model.pipe(Flag.atLeast(0)),
    monthlyBudgetUsd: budget.pipe(Flag.optional),
    ...optional
  },
  waits: false,
  payload: (settings) => Effect.succeed(settings),
  send: ({ asMember }, request) => asMember.aiGateways.update(request),
  changed: ({ body }) => body
})

const models = on("models", {}, ({ one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const found = yield* call(client.asMember.aiGateways.models(one))
    yield* asJson ? json(found) : out(found.join("\n"))
  })
).pipe(Command.withDescription("List the models that calls may name"))

interface Sums {
  readonly requests: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly spentUsd: number
}
const sumsTable = <A extends Sums>(head: string, rows: ReadonlyArray<A>, what: (row: A) => string) =>
  table(
    [head, "CALLS", "INPUT", "OUTPUT", "SPENT"],
    rows.map((row) => [
      what(row),
      String(row.requests),
      String(row.inputTokens),
      String(row.outputTokens),
      usd(row.spentUsd)
    ])
  )

const usage = on(
  "usage",
  { days: Flag.Boolean("days").pipe(Flag.withDescription("Also day by day"), Flag.withDefault(false)) },
  ({ one: { params } }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const query = flags.days ? { granularity: "day" as const } : {}
      const found = yield* call(client.asMember.aiGateways.usage({ params, query }))
      if (asJson) return yield* json(found)
      yield* out(
        facts([
          ["Month", found.month.slice(0, 7)],
          ["Budget", usd(found.budgetUsd)],
          ["Spent", usd(found.spentUsd)],
          ["Held", `${usd(found.reservedUsd)} for calls under way`],
          ["Left", usd(found.remainingUsd)],
          ["Calls", String(found.requests)]
        ])
      )
      if (found.requests === 0) return
      yield* out(`\n${sumsTable("MODEL", found.models, ({ model }) => model)}`)
      const keyName = ({ keyId, name }: (typeof found.keys)[number]) => name ?? keyId ?? "apps"
      yield* out(`\n${sumsTable("KEY", found.keys, keyName)}`)
      if (found.days !== undefined) yield* out(`\n${sumsTable("DAY", found.days, ({ date }) => date)}`)
    })
).pipe(Command.withDescription("What it has spent this month (UTC), by model and key"))

const requests = on(
  "requests",
  { limit: Flag.Int("limit").pipe(Flag.withDescription("How many, at most 100"), Flag.withDefault(20)) },
  ({ one: { params } }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { items } = yield* call(
        client.asMember.aiGateways.requests({ params, query: { limit: flags.limit } })
      )
      if (asJson) return yield* json(items)
      if (items.length === 0) return yield* say("There were no calls in the last seven days")
      yield* out(
        table(
          ["ENDED", "MODEL", "UPSTREAM", "STATUS", "INPUT", "OUTPUT", "COST", "MS"],
          items.map((one) => [
            one.endedAt,
            one.model,
            one.upstream ?? "",
            String(one.status ?? "lost"),
            String(one.inputTokens),
            String(one.outputTokens),
            usd(one.costUsd),
            String(one.latencyMs ?? "")
          ])
        )
      )
    })
).pipe(Command.withDescription("List recent calls, newest first, without what was said in them"))

const keysLs = on("ls", {}, ({ one: { params } }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const found = yield* call(client.asMember.aiGateways.listKeys({ params }))
    if (asJson) return yield* json(found)
    if (found.length === 0) return yield* say("It has no keys")
    yield* out(
      table(
        ["NAME", "ID", "KEY", "LAST USED", "STATE"],
        found.map((key) => [
          key.name,
          key.id,
          key.keyPrefix,
          key.lastUsedAt ?? "never",
          key.revokedAt === null ? "valid" : `revoked ${key.revokedAt}`
        ])
      )
    )
  })
).pipe(Command.withAlias("list"), Command.withDescription("List keys, revoked ones too"))

const key = (description: string) => Argument.String("key").pipe(Argument.withDescription(description))

const keysCreate = on("create", { key: key("What to call it") }, ({ one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    const made = yield* call(client.asMember.aiGateways.createKey({ ...one, payload: { name: flags.key } }))
    if (asJson) return yield* json(made)
    yield* say(`The key "${made.name}" is shown this once:`)
    yield* out(made.secret)
  })
).pipe(Command.withDescription("Make a key; it is shown this once"))

const keysRevoke = on(
  "revoke",
  { key: key("Its id, or the name of a valid one"), yes },
  ({ one: { params } }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const found = yield* call(client.asMember.aiGateways.listKeys({ params }))
      const named = found.filter(({ name, revokedAt }) => name === flags.key && revokedAt === null)
      const [chosen] = [...found.filter(({ id }) => id === flags.key), ...named]
      if (chosen === undefined)
        return yield* failure(`The gateway has no valid key "${flags.key}"`, exitCodes.notFound)
      if (named.length > 1 && chosen.id !== flags.key)
        return yield* failure(
          `${named.length} valid keys are called "${flags.key}": give an id`,
          exitCodes.usage
        )
      yield* confirmName(`Calls with the key "${chosen.name}" end at once.`, chosen.name, flags.yes)
      const done = yield* call(
        client.asMember.aiGateways.revokeKey({ params: { ...params, keyId: chosen.id } })
      )
      yield* asJson ? json(done) : say(`${chosen.name} opens nothing any more`)
    })
).pipe(Command.withDescription("Revoke a key; its running calls end too"))

const keys = Command.make("keys").pipe(
  Command.withDescription("Keys of an AI gateway"),
  Command.withSubcommands([keysLs, keysCreate, keysRevoke])
)

const rm = remove({
  warning: (name) => `This deletes the AI gateway "${name}" and revokes all of its keys.`,
  send: ({ asOwner }, one) => asOwner.aiGateways.delete(one),
  address: ({ name }, { project, environment }) => `${project}/${environment}/AiGateway/${name}`
}).pipe(Command.withDescription("Delete an AI gateway and revoke all of its keys"))

export const ai = Command.make("ai").pipe(
  Command.withDescription("AI gateways: one OpenAI-compatible address, with a budget that holds"),
  Command.withSubcommands([list, show, create, change, models, usage, requests, keys, rm])
)
