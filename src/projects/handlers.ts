/** Handlers of `projects.*` and `environments.*`. */
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Budget as BudgetKind, BudgetSpec, budgetName } from "#schemas/budget.ts"
import { Environment, EnvironmentSpec } from "#schemas/environment.ts"
import { implicitEnvironments, isPullRequestPreview } from "#schemas/names.ts"
import { Project } from "#schemas/project.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem, slugTaken } from "#src/api/problem.ts"
import { projectSingleton } from "#src/api/project-singleton.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetProject } from "#src/api/target.ts"
import { amend, precondition } from "#src/api/writing.ts"
import { type Budget, Budgets } from "#src/budgets/Budgets.ts"
import { usdOf } from "#src/budgets/money.ts"
import { settingsOf } from "#src/budgets/settings-of.ts"
import { RequestRecords } from "#src/edge/requests/RequestRecords.ts"
import { digitOf, RequestPage, requestView } from "#src/edge/requests/view.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { signingSecretBytes, signingSecretOf } from "#src/outbound/signature.ts"
import { previousSigningField, signingField } from "#src/outbound/signing-secrets.ts"
import type { CreateChange } from "#src/store/change.ts"
import { type Reservation, randomBytesOf, uidsOf } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { AppServiceTokens } from "./AppServiceTokens.ts"
import { BudgetView, EnvironmentView, ProjectView } from "./api.ts"
import { environmentView, isImplicit, projectView } from "./views.ts"

/** The environments that every project has. */
const environmentsOf = (reservation: Reservation): ReadonlyArray<CreateChange> => {
  const uids = uidsOf(reservation, "environments", implicitEnvironments.length)
  return implicitEnvironments.map((name, index) => ({
    action: "create",
    uid: uids[index] ?? "",
    kind: Environment.name,
    projectId: reservation.uid,
    environment: null,
    name,
    parentUid: reservation.uid,
    spec: {},
    managedBy: "api"
  }))
}

const decodeEnvironment = Schema.decodeUnknownEffect(EnvironmentSpec)

const completeBudget = Schema.decodeUnknownEffect(BudgetSpec)
/** The tag of a budget is the generation of its resource, which reports of the engine leave alone. */
const ofGeneration = Effect.fnUntraced(function* (record: ResourceRecord | undefined) {
  const expected = yield* precondition({ revision: String(record?.generation ?? 0) })
  return record === undefined || expected.expectedRevision === undefined
    ? {}
    : { expectedGeneration: record.generation }
})

const budgetView = ({ monthlyCap, alertPercent, hardStop, month, spent, reserved }: Budget) => ({
  monthlyCapUsd: monthlyCap === null ? null : usdOf(monthlyCap),
  alertThresholdPercent: alertPercent,
  hardStop,
  month,
  spentUsd: usdOf(spent),
  reservedUsd: usdOf(reserved),
  remainingUsd: monthlyCap === null ? null : usdOf(Math.max(0, monthlyCap - spent - reserved))
})

export const layerProjects = HttpApiBuilder.group(
  Api,
  "projects",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const budgets = yield* Budgets
    const projects = yield* resourceHandlers(Project, {
      view: ProjectView,
      viewer: () => Effect.succeed(projectView),
      target: Effect.fnUntraced(function* () {
        const { orgId } = yield* RequestScope
        const { projectId } = yield* targetProject
        const found = yield* Effect.mapError(resources.get(orgId, projectId), fromStore)
        return Option.isSome(found) ? found.value : yield* notFound("project")
      }),
      taken: slugTaken
    })
    const theResource = yield* projectSingleton(BudgetKind, budgetName)
    const theBudget = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      return yield* Effect.mapError(budgets.get(orgId, projectId), fromStore)
    })
    return handlers.handleAll(
      handlersOf(Api.groups.projects)({
        list: projects.list,
        create: projects.create(({ payload: { slug, ...asked } }) =>
          Effect.map(RequestScope, ({ reservation }) => ({
            name: slug,
            spec: { runtimeClass: "scale-to-zero", ...asked },
            parts: environmentsOf(reservation)
          }))
        ),
        get: projects.get,
        update: projects.update(({ payload }) =>
          // null takes a field away; what is left out stays.
          Effect.succeed((current) =>
            Object.fromEntries(
              Object.entries({ ...current, ...payload }).filter(([, value]) => value !== null)
            )
          )
        ),
        delete: projects.delete(),
        getBudget: () => Effect.map(theBudget, (budget) => answer(BudgetView, budgetView(budget), budget)),
        setBudget: Effect.fnUntraced(function* ({ payload }) {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          const spec = yield* Effect.orDie(completeBudget(payload))
          const { uid, generation } = yield* theResource.set(spec, ofGeneration)
          // At once, and not when the engine comes to it: what is begun after the answer goes by it.
          const enforce = budgets.enforce({ orgId, projectId, uid, ...settingsOf(spec), generation })
          yield* Effect.mapError(enforce, fromStore)
          const budget = yield* theBudget
          return answer(BudgetView, budgetView(budget), budget)
        })
      })
    )
  })
)

export const layerEnvironments = HttpApiBuilder.group(
  Api,
  "environments",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const invocations = yield* Invocations
    const appTokens = yield* AppServiceTokens
    const requests = yield* RequestRecords
    const cursors = yield* Cursors
    const find = Effect.fnUntraced(function* (idOrSlug: string) {
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      const all = yield* Effect.mapError(resources.listKind(orgId, Environment.name, projectId), fromStore)
      const named = all.filter((one) => one.uid === idOrSlug || one.name === idOrSlug)
      // What is being deleted gives way to what took its name.
      const record = named.find((one) => one.deletionRequestedAt === null) ?? named[0]
      return record ?? (yield* notFound("environment in this project"))
    })
    const environments = yield* resourceHandlers(Environment, {
      view: EnvironmentView,
      viewer: () => Effect.succeed(environmentView),
      target: ({ params }: { readonly params: { readonly environmentId: string } }) =>
        find(params.environmentId),
      taken: slugTaken
    })
    return handlers.handleAll(
      handlersOf(Api.groups.environments)({
        list: environments.list,
        create: environments.create(({ payload: { slug } }) =>
          isPullRequestPreview(slug)
            ? Effect.fail(
                invalid([
                  {
                    pointer: "/slug",
                    message: "is the name of a pull request's preview, which comes and goes by itself"
                  }
                ])
              )
            : Effect.succeed({ name: slug, spec: {} })
        ),
        update: environments.update(
          ({ payload: { origin } }) =>
            Effect.succeed(({ origin: _, ...rest }) =>
              origin === null ? rest : { ...rest, origin: new URL(origin).origin }
            ),
          { keepsManager: true }
        ),
        rotateSigningSecret: Effect.fnUntraced(function* ({ params }) {
          const { orgId, reservation } = yield* RequestScope
          const signingSecret = signingSecretOf(
            randomBytesOf(reservation, "signing secret", signingSecretBytes)
          )
          const answered = { signingSecret: Redacted.value(signingSecret) }
          const environment = yield* find(params.environmentId)
          if (reservation.again) {
            const { secrets } = yield* Effect.mapError(invocations.target(orgId, environment.uid), fromStore)
            // Once more, and it would take the place of the one that it replaced.
            if (secrets[0] !== undefined && Redacted.value(secrets[0]) === answered.signingSecret)
              return answered
          }
          yield* amend(
            environment,
            Effect.fnUntraced(function* (record: ResourceRecord) {
              const spec = yield* Effect.orDie(decodeEnvironment(record.spec))
              const target = yield* Effect.mapError(invocations.target(orgId, record.uid), fromStore)
              const [current] = target.secrets
              return {
                spec: { ...spec, signingVersion: (spec.signingVersion ?? 0) + 1 },
                secrets: {
                  [signingField]: signingSecret,
                  ...(current === undefined ? {} : { [previousSigningField]: current })
                }
              }
            })
          )
          return answered
        }),
        rotateAppServiceToken: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const environment = yield* find(params.environmentId)
          const rotated = yield* Effect.mapError(
            appTokens.rotate(orgId, environment.uid, caller.actor, reservation),
            fromStore
          )
          if (Option.isNone(rotated))
            return yield* problem(409, "being_deleted", "The environment is being deleted")
          const { token, previousValidUntil } = rotated.value
          return {
            appServiceToken: Redacted.value(token),
            previousValidUntil: previousValidUntil?.toISOString() ?? null
          }
        }),
        requests: Effect.fnUntraced(function* ({ params, query }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* find(params.environmentId)
          const { limit = defaultPageSize, cursor, status, path, since } = query
          const list = `requests ${orgId} ${uid}`
          const [before] = (yield* cursors.decode(list, cursor)) ?? []
          const filter = {
            statusClass: status === undefined ? undefined : digitOf(status),
            path,
            since: since === undefined ? undefined : DateTime.toDateUtc(since)
          }
          const found = yield* Effect.mapError(
            requests.list(orgId, uid, filter, limit + 1, before),
            fromStore
          )
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [last.number])
          return answer(RequestPage, {
            items: items.map(requestView),
            nextCursor
          })
        }),
        delete: environments.delete((record) =>
          record.parentUid !== record.projectId
            ? Effect.fail(
                problem(
                  409,
                  "preview_environment",
                  `"${record.name}" belongs to the preview of a pull request; close the preview instead`
                )
              )
            : isImplicit(record)
              ? Effect.fail(
                  problem(
                    409,
                    "implicit_environment",
                    `Every project has "${record.name}"; delete what is in it instead`
                  )
                )
              : Effect.void
        )
      })
    )
  })
)
