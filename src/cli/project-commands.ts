/** `svc projects` and `svc environments`: what contains the others. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { PreviewData, RuntimeClass } from "#schemas/project.ts"
import type { BudgetView } from "../api/definition/projects.ts"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, online, project, waiting, yes } from "./flags.ts"
import { facts, json, out, paint, say, table } from "./output.ts"
import { deleted } from "./service.ts"
import { waitForOne } from "./wait.ts"

const projectsLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const found = yield* call(asMember.projects.list({ params: { orgId: org } }))
      if (flags.json) return yield* json(found)
      if (found.length === 0) return yield* say(`There are no projects in "${org}"`)
      yield* out(
        table(
          ["SLUG", "NAME", "RUNTIME CLASS", "CREATED"],
          found.map(({ slug, name, runtimeClass, createdAt }) => [slug, name, runtimeClass, createdAt])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List projects"))

const projectsCreate = Command.make(
  "create",
  {
    ...connection,
    ...waiting,
    json: asJson,
    slug: Argument.String("slug"),
    name: Flag.String("name").pipe(Flag.withDescription("For people; else the slug"), Flag.optional),
    runtimeClass: Flag.Literals("runtime-class", RuntimeClass.literals).pipe(Flag.optional)
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const payload = {
          slug: flags.slug,
          name: Option.getOrElse(flags.name, () => flags.slug),
          ...(Option.isSome(flags.runtimeClass) ? { runtimeClass: flags.runtimeClass.value } : {})
        }
        const made = yield* call(asMember.projects.create({ params: { orgId: org }, headers: {}, payload }))
        if (flags.wait) yield* waitForOne(made.id, flags)
        yield* flags.json
          ? json(made)
          : say(`${made.slug} ${paint("green", "is there")}, with its environments production and preview`)
      })
    )
).pipe(Command.withDescription("Create a project with its production and preview environments"))

const projectsUpdate = Command.make(
  "update",
  {
    ...connection,
    json: asJson,
    project,
    name: Flag.String("name").pipe(Flag.withDescription("New name, for people"), Flag.optional),
    runtimeClass: Flag.Literals("runtime-class", RuntimeClass.literals).pipe(Flag.optional),
    previewData: Flag.Literals("preview-data", PreviewData.literals).pipe(
      Flag.withDescription("Whether the environment preview may hold copies of production data"),
      Flag.optional
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const payload = {
          ...(Option.isSome(flags.name) ? { name: flags.name.value } : {}),
          ...(Option.isSome(flags.runtimeClass) ? { runtimeClass: flags.runtimeClass.value } : {}),
          ...(Option.isSome(flags.previewData) ? { previewData: flags.previewData.value } : {})
        }
        if (Object.keys(payload).length === 0)
          return yield* failure("Say what to change; --help lists it", exitCodes.usage)
        const params = { orgId: org, projectId: flags.project }
        const { body } = yield* call(asMember.projects.update({ params, headers: {}, payload }))
        yield* flags.json
          ? json(body)
          : say(
              `"${body.name}" (${body.slug}): ${body.runtimeClass}, production data in previews ${body.previewData}`
            )
      })
    )
).pipe(
  Command.withDescription("Change a project"),
  Command.withExamples([
    {
      command: "svc projects update shop --preview-data allowed",
      description: "Let branches of production databases into previews"
    }
  ])
)

const projectsDelete = Command.make(
  "delete",
  { ...connection, ...waiting, json: asJson, project, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, asOwner, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
        const { body } = yield* call(asMember.projects.get({ params }))
        yield* confirmName(
          `This deletes the project "${body.slug}" and everything in it, with all data.`,
          body.slug,
          flags.yes
        )
        yield* call(asOwner.projects.delete({ params, headers: {} }))
        yield* deleted(body.id, `Project/${body.slug}`, flags)
      })
    )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a project and everything in it"))

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

const budgetGet = Command.make("get", { ...connection, json: asJson, project }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const params = { orgId: org, projectId: flags.project }
      const { body } = yield* call(asMember.projects.getBudget({ params }))
      yield* flags.json ? json(body) : out(showBudget(body))
    })
  )
).pipe(Command.withDescription("What the project may spend, and what it has spent"))

const decodeAmount = Schema.decodeUnknownOption(Schema.FiniteFromString)
const decodePercent = Schema.decodeUnknownOption(Schema.FiniteFromString.check(Schema.isInt()))

const budgetSet = Command.make(
  "set",
  {
    ...connection,
    json: asJson,
    project,
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
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
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
        yield* flags.json ? json(set.body) : out(showBudget(set.body))
      })
    )
).pipe(Command.withDescription("Say what the project may spend in a calendar month (UTC)"))

const budget = Command.make("budget").pipe(
  Command.withDescription("What a project may spend"),
  Command.withSubcommands([budgetGet, budgetSet])
)

export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects"),
  Command.withSubcommands([projectsLs, projectsCreate, projectsUpdate, projectsDelete, budget])
)

const slug = Argument.String("environment").pipe(Argument.withDescription("Slug of the environment"))

const environmentsLs = Command.make("ls", { ...connection, json: asJson, project }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const params = { orgId: org, projectId: flags.project }
      const found = yield* call(asMember.environments.list({ params }))
      if (flags.json) return yield* json(found)
      yield* out(
        table(
          ["SLUG", "ORIGIN", "CREATED"],
          found.map((one) => [one.slug, one.origin ?? "", one.createdAt])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List environments"))

const environmentsCreate = Command.make(
  "create",
  { ...connection, ...waiting, json: asJson, project, slug },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
        const payload = { slug: flags.slug }
        const made = yield* call(asMember.environments.create({ params, headers: {}, payload }))
        if (flags.wait) yield* waitForOne(made.id, flags)
        yield* flags.json ? json(made) : say(`${flags.project}/${made.slug} ${paint("green", "is there")}`)
      })
    )
).pipe(Command.withDescription("Create an environment"))

const environmentsOrigin = Command.make(
  "origin",
  {
    ...connection,
    json: asJson,
    project,
    slug,
    origin: Argument.String("origin").pipe(
      Argument.withDescription("Such as https://shop.example.com; `none` takes it away")
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { body } = yield* call(
          asMember.environments.update({
            params: { orgId: org, projectId: flags.project, environmentId: flags.slug },
            headers: {},
            payload: { origin: flags.origin === "none" ? null : flags.origin }
          })
        )
        const place = `${flags.project}/${body.slug}`
        yield* flags.json
          ? json(body)
          : say(body.origin === null ? `${place} has no origin now` : `${place} answers at ${body.origin}`)
      })
    )
).pipe(Command.withDescription("Say where the app answers: cron and queue invocations go there"))

const environmentsSecret = Command.make(
  "rotate-secret",
  { ...connection, json: asJson, project, slug },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const params = { orgId: org, projectId: flags.project, environmentId: flags.slug }
        const made = yield* call(asMember.environments.rotateSigningSecret({ params, headers: {} }))
        yield* flags.json ? json(made) : out(made.signingSecret)
      })
    )
).pipe(
  Command.withDescription(
    "Replace the secret that cron and queue invocations are signed with, and show it once"
  )
)

const environmentsDelete = Command.make(
  "delete",
  { ...connection, ...waiting, json: asJson, project, slug, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, asOwner, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
        const found = (yield* call(asMember.environments.list({ params }))).find(
          (one) => one.slug === flags.slug || one.id === flags.slug
        )
        const name = found?.slug ?? flags.slug
        yield* confirmName(
          `This deletes the environment "${name}" of ${flags.project} and everything in it, with all data.`,
          name,
          flags.yes
        )
        yield* call(asOwner.environments.delete({ params: { ...params, environmentId: flags.slug } }))
        if (found !== undefined) yield* deleted(found.id, `${flags.project}/Environment/${name}`, flags)
      })
    )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete an environment and everything in it"))

export const environments = Command.make("environments").pipe(
  Command.withDescription("Environments of a project"),
  Command.withSubcommands([
    environmentsLs,
    environmentsCreate,
    environmentsOrigin,
    environmentsSecret,
    environmentsDelete
  ])
)
