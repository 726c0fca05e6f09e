/** `svc projects budget`. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { facts, json, out, say, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { commandIn, inProject } from "#src/cli/resource-commands.ts"
import type { BudgetView } from "#src/projects/api.ts"

const commandInProject = commandIn(inProject)

type Budget = (typeof BudgetView)["Type"]

const showBudget = (budget: Budget) => {
  const usd = (amount: number | null, none: string) => (amount === null ? none : `$${amount}`)
  return facts([
    ["Month", budget.month],
    ["Cap", usd(budget.monthlyCapUsd, "none")],
    ["Spent", usd(budget.spentUsd, "")],
    ["Reserved", usd(budget.reservedUsd, "")],
    ["Left", usd(budget.remainingUsd, "any number")],
    ["Alert", budget.alertThresholdPercent === null ? "never" : `at ${budget.alertThresholdPercent} %`],
    ["At the cap", budget.hardStop ? "nothing is begun that could exceed it" : "it is counted only"]
  ])
}

const budgetGet = commandInProject("get", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const { body } = yield* call(client.asMember.projects.getBudget(yield* at))
    yield* asJson ? json(body) : out(showBudget(body))
  })
).pipe(Command.withDescription("What the project may spend, and what it has spent"))

const decodeAmount = Schema.decodeUnknownOption(Schema.FiniteFromString)
const decodePercent = Schema.decodeUnknownOption(Schema.FiniteFromString.check(Schema.isInt()))

const budgetSet = commandInProject(
  "set",
  {
    cap: Flag.String("cap").pipe(
      Flag.withDescription("US dollars a month; `none` takes the cap away"),
      Flag.optional
    ),
    alert: Flag.String("alert").pipe(
      Flag.withDescription("Percentage of the cap at which budget.alert is sent, or `none`"),
      Flag.optional
    ),
    hardStop: Flag.Boolean("hard-stop").pipe(
      Flag.withDescription("Begin nothing that could exceed the cap (--no-hard-stop: count it only)"),
      Flag.optional
    )
  },
  ({ client: { asMember }, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      // What is not named stays as it is.
      const { body, headers } = yield* call(asMember.projects.getBudget({ params }))
      const number = (text: string, flag: string, decode: typeof decodeAmount) =>
        text === "none"
          ? Effect.succeed(null)
          : Effect.mapError(Effect.fromOption(decode(text)), () =>
              failure(`--${flag} takes a number or "none", not "${text}"`, exitCodes.usage)
            )
      const payload = {
        monthlyCapUsd: Option.isSome(flags.cap)
          ? yield* number(flags.cap.value, "cap", decodeAmount)
          : body.monthlyCapUsd,
        alertThresholdPercent: Option.isSome(flags.alert)
          ? yield* number(flags.alert.value, "alert", decodePercent)
          : body.alertThresholdPercent,
        hardStop: Option.getOrElse(flags.hardStop, () => body.hardStop)
      }
      const set = yield* call(
        asMember.projects.setBudget({ params, headers: { "if-match": headers.etag }, payload })
      )
      yield* asJson ? json(set.body) : out(showBudget(set.body))
    })
).pipe(Command.withDescription("Say what the project may spend in a calendar month (UTC)"))

const day = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

const budgetUsage = commandInProject(
  "usage",
  {
    from: day("from", "First day (UTC), such as 2026-11-01; default: the first of this month"),
    to: day("to", "Last day (UTC); default: today")
  },
  ({ client: { asMember }, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const days = {
        ...(Option.isSome(flags.from) ? { from: flags.from.value } : {}),
        ...(Option.isSome(flags.to) ? { to: flags.to.value } : {})
      }
      const items = yield* itemsOf((page) =>
        call(asMember.budgets.usage({ params, query: { ...days, ...page } }))
      )
      yield* asJson
        ? json({ items })
        : items.length === 0
          ? say("Nothing has cost anything in these days; what runs is counted after each hour")
          : out(
              table(
                ["DATE", "KIND", "NAME", "ENVIRONMENT", "ITEM", "USD"],
                items.map(({ date, kind, name, environment, item, usd }) => [
                  date,
                  kind,
                  name,
                  environment ?? "",
                  item,
                  usd.toFixed(6)
                ])
              )
            )
    })
).pipe(Command.withDescription("What the things of the project cost by day"))

export const budget = Command.make("budget").pipe(
  Command.withDescription("What a project may spend, and what it spends"),
  Command.withSubcommands([budgetGet, budgetSet, budgetUsage])
)
