/** Handlers of `projects.*` and `environments.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { EnvironmentSpec } from "#schemas/environment.ts"
import { implicitEnvironments } from "#schemas/names.ts"
import { ProjectSpec } from "#schemas/project.ts"
import { type Budget, Budgets, defaults } from "#src/budgets/Budgets.ts"
import { microUsdOf, usdOf } from "#src/budgets/money.ts"
import { signingSecretBytes, signingSecretOf } from "#src/outbound/signature.ts"
import type { CreateChange } from "#src/store/changes.ts"
import { Invocations, previousSigningField, signingField } from "#src/store/Invocations.ts"
import { type Reservation, randomBytesOf, uidsOf } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { answer } from "./answer.ts"
import { Api } from "./definition/api.ts"
import { BudgetView, EnvironmentView, ProjectList, ProjectView } from "./definition/projects.ts"
import { RequestScope } from "./definition/scope.ts"
import { guard } from "./guard.ts"
import { fromStore, notFound, problem, slugTaken } from "./problem.ts"
import { targetProject } from "./target.ts"
import { environmentView, isImplicit, projectView, viewAll } from "./views.ts"
import { amend, createdBefore, mismatch, precondition, remove, stored } from "./writing.ts"

/** A project and the environments that every project has. */
const newProject = (
  reservation: Reservation,
  slug: string,
  spec: typeof ProjectSpec.Type
): ReadonlyArray<CreateChange> => {
  const { uid } = reservation
  const inside = uidsOf(reservation, "environments", implicitEnvironments.length)
  return [
    {
      action: "create",
      uid,
      kind: "Project",
      projectId: null,
      environment: null,
      name: slug,
      parentUid: null,
      spec,
      managedBy: "api"
    },
    ...implicitEnvironments.map((name, index) => newEnvironment(inside[index] ?? "", uid, name))
  ]
}

const newEnvironment = (uid: string, projectId: string, name: string): CreateChange => ({
  action: "create",
  uid,
  kind: "Environment",
  projectId,
  environment: null,
  name,
  parentUid: projectId,
  spec: {},
  managedBy: "api"
})

const decodeSpec = Schema.decodeUnknownEffect(ProjectSpec)
const decodeEnvironment = Schema.decodeUnknownEffect(EnvironmentSpec)

const theProject = Effect.gen(function* () {
  const { orgId } = yield* RequestScope
  const { projectId } = yield* targetProject
  const resources = yield* Resources
  const found = yield* Effect.mapError(resources.get(orgId, projectId), fromStore)
  return Option.isSome(found) ? found.value : yield* notFound("project")
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
    const theBudget = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      return yield* Effect.mapError(budgets.get(orgId, projectId), fromStore)
    })
    return handlers.handleAll(
      guard(Api.groups.projects)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const records = yield* Effect.mapError(resources.listKind(orgId, "Project", null), fromStore)
          return answer(ProjectList, yield* viewAll(records, projectView))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const before = yield* createdBefore
          if (before !== undefined) return projectView(before)
          const { orgId, caller, reservation } = yield* RequestScope
          const { slug, ...rest } = payload
          const spec = { runtimeClass: "scale-to-zero" as const, ...rest }
          const changes = newProject(reservation, slug, spec)
          const [written] = yield* stored(
            resources.write(orgId, changes, { ...caller.actor, outcome: 201 })
          ).pipe(Effect.mapError(slugTaken(slug)))
          const at = written?.createdAt.toISOString() ?? ""
          return {
            id: written?.uid ?? "",
            slug,
            name: spec.name,
            runtimeClass: spec.runtimeClass,
            region: spec.region ?? null,
            git: spec.git ?? null,
            previewData: "forbidden" as const,
            createdAt: at,
            updatedAt: at
          }
        }),
        get: Effect.fnUntraced(function* () {
          const record = yield* theProject
          return answer(ProjectView, projectView(record), record)
        }),
        update: Effect.fnUntraced(function* ({ payload }) {
          const after = yield* amend(
            yield* theProject,
            Effect.fnUntraced(function* (record: ResourceRecord) {
              const current = yield* Effect.orDie(decodeSpec(record.spec))
              // null takes a field away; what is left out stays.
              const merged = Object.fromEntries(
                Object.entries({ ...current, ...payload }).filter(([, value]) => value !== null)
              )
              return { spec: yield* Effect.orDie(decodeSpec(merged)), managedBy: "api" as const }
            })
          )
          return answer(ProjectView, projectView(after), after)
        }),
        delete: () => Effect.flatMap(theProject, remove),
        getBudget: () => Effect.map(theBudget, (budget) => answer(BudgetView, budgetView(budget), budget)),
        setBudget: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, ifMatch } = yield* RequestScope
          const { projectId } = yield* targetProject
          const expected = ifMatch === undefined ? {} : yield* precondition(yield* theBudget)
          const settings = {
            monthlyCap: payload.monthlyCapUsd === null ? null : microUsdOf(payload.monthlyCapUsd),
            alertPercent:
              payload.alertThresholdPercent === undefined
                ? defaults.alertPercent
                : payload.alertThresholdPercent,
            hardStop: payload.hardStop ?? defaults.hardStop,
            ...expected
          }
          const budget = yield* Effect.mapError(
            budgets.set(orgId, projectId, settings, caller.actor),
            (error) => (error._tag === "RevisionConflict" ? mismatch : fromStore(error))
          )
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
    const list = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      return yield* Effect.mapError(resources.listKind(orgId, "Environment", projectId), fromStore)
    })
    const find = Effect.fnUntraced(function* (idOrSlug: string) {
      const named = (yield* list).filter((one) => one.uid === idOrSlug || one.name === idOrSlug)
      // What is being deleted gives way to what took its name.
      const record = named.find((one) => one.deletionRequestedAt === null) ?? named[0]
      return record ?? (yield* notFound("environment in this project"))
    })
    return handlers.handleAll(
      guard(Api.groups.environments)({
        list: () => Effect.flatMap(list, (records) => viewAll(records, environmentView)),
        create: Effect.fnUntraced(function* ({ payload }) {
          const before = yield* createdBefore
          if (before !== undefined) return environmentView(before)
          const { orgId, caller, reservation } = yield* RequestScope
          const { projectId } = yield* targetProject
          const change = newEnvironment(reservation.uid, projectId, payload.slug)
          const [written] = yield* stored(
            resources.write(orgId, [change], { ...caller.actor, outcome: 201 })
          ).pipe(Effect.mapError(slugTaken(payload.slug)))
          return environmentView({
            uid: change.uid,
            name: payload.slug,
            spec: change.spec,
            createdAt: written?.createdAt ?? new Date(0)
          })
        }),
        update: Effect.fnUntraced(function* ({ params, payload }) {
          const after = yield* amend(yield* find(params.environmentId), (record) =>
            Effect.map(
              Effect.orDie(decodeEnvironment(record.spec)),
              ({ origin: _, ...rest }): { spec: typeof EnvironmentSpec.Type } => ({
                spec: payload.origin === null ? rest : { ...rest, origin: new URL(payload.origin).origin }
              })
            )
          )
          return answer(EnvironmentView, environmentView(after), after)
        }),
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
        delete: Effect.fnUntraced(function* ({ params }) {
          const record = yield* find(params.environmentId)
          if (isImplicit(record)) {
            return yield* problem(
              409,
              "implicit_environment",
              `Every project has "${record.name}"; delete what is in it instead`
            )
          }
          return yield* remove(record)
        })
      })
    )
  })
)
