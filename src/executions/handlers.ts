/** Handlers of `executions.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { DeploymentSpec } from "#schemas/deployment.ts"
import { ExecutionSpec } from "#schemas/execution.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem } from "#src/api/problem.ts"
import { targetProject, targetRecord } from "#src/api/target.ts"
import { viewAll } from "#src/api/views.ts"
import { amend, createdBefore, stored } from "#src/api/writing.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Catalog, executionMicroUsd } from "#src/catalog/Catalog.ts"
import { makeLogHandler } from "#src/container-logs/log-handler.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Resources } from "#src/store/Resources.ts"
import { ExecutionAvailability, ExecutionList, ExecutionView } from "./api.ts"
import { type ExecutionRecord, Executions } from "./Executions.ts"
import { Logs } from "./Logs.ts"
import { ExecutionOptions } from "./options.ts"
import { executionFaults, specOf } from "./request.ts"
import { settings } from "./settings.ts"

const storedSpec = Schema.decodeUnknownSync(ExecutionSpec)
const storedDeployment = Schema.decodeUnknownSync(DeploymentSpec)

export const layer = HttpApiBuilder.group(
  Api,
  "executions",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const executions = yield* Executions
    const deployments = yield* Deployments
    const logs = yield* Logs
    const budgets = yield* Budgets
    const catalog = yield* Catalog
    const engine = yield* ContainerEngine
    const { registries, sandboxRuntime, orgExecutions } = yield* settings
    const { graceMs } = yield* ExecutionOptions
    const { limits } = catalog.executions
    const showLog = yield* makeLogHandler

    const read = Effect.fnUntraced(function* (orgId: string, uid: string) {
      const found = yield* Effect.mapError(executions.get(orgId, uid), fromStore)
      return Option.isSome(found) ? executionView(found.value) : yield* notFound("execution")
    })

    const runnable = Effect.fnUntraced(function* (orgId: string, projectId: string, uid: string) {
      const [record, deployment] = yield* Effect.mapError(
        Effect.all([resources.get(orgId, uid), deployments.get(orgId, uid)], { concurrency: 2 }),
        fromStore
      )
      if (Option.isNone(record) || Option.isNone(deployment) || record.value.projectId !== projectId)
        return yield* notFound("deployment")
      const { environment, spec, imageDigest, imageGone } = deployment.value
      if (imageDigest === null || imageGone)
        return yield* problem(409, "image_gone", "The deployment has no image, or it is kept no more")
      return { uid, environment, region: storedDeployment(spec).region, imageDigest }
    })

    return handlers.handleAll(
      handlersOf(Api.groups.executions)({
        list: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          const found = yield* Effect.mapError(
            executions.list(orgId, projectId, query.limit ?? defaultPageSize, query.status),
            fromStore
          )
          return answer(ExecutionList, yield* viewAll(found, executionView))
        }),
        availability: Effect.fnUntraced(function* () {
          const state = yield* engine.state
          return answer(ExecutionAvailability, {
            ready: state._tag === "Ready" || (state._tag === "Down" && state.startable),
            regions: catalog.regions.map(({ id, name, city, country, continent }) => ({
              id,
              name,
              city,
              country,
              continent
            })),
            architectures: catalog.executions.architectures,
            cpuKinds: catalog.executions.cpuKinds,
            runtime: { nestedContainers: sandboxRuntime !== undefined },
            privateImageRegistries: registries,
            limits
          })
        }),
        create: billedLate(
          Effect.fnUntraced(function* ({ payload }) {
            const { orgId, caller, role, reservation } = yield* RequestScope
            const { projectId } = yield* targetProject
            const { uid } = reservation
            // Who may read what it prints, may read passwords that otherwise only admins get.
            if ((payload.services === true || payload.deploymentId !== undefined) && role === "member")
              return yield* problem(
                403,
                "forbidden",
                "An execution with services or of a deployment needs the role admin; this credential has member"
              )
            if ((yield* createdBefore) !== undefined) return yield* read(orgId, uid)
            const deployment =
              payload.deploymentId === undefined
                ? undefined
                : yield* runnable(orgId, projectId, payload.deploymentId)
            const spec = specOf(payload, deployment)
            const faults = executionFaults(payload, spec, {
              catalog,
              registries,
              nestedContainers: sandboxRuntime !== undefined,
              deployment
            })
            if (faults.length > 0) return yield* invalid(faults)
            yield* billing
            const most = { organization: orgExecutions, project: limits.maxActiveExecutionsPerProject }
            const room = { orgId, projectId, uid }
            const full = yield* Effect.mapError(executions.enter(room, most), fromStore)
            if (full !== undefined)
              return yield* problem(
                409,
                "too_many_executions",
                `The ${full} has ${most[full]} executions that have not ended, and no more may be at once. Wait for one, or cancel one`
              )
            const making = Effect.gen(function* () {
              yield* Effect.mapError(
                budgets.reserve({
                  orgId,
                  projectId,
                  uid,
                  // The most that it may take: its time, and being told to end until it is made to.
                  microUsd: executionMicroUsd(catalog, spec.resources, spec.timeoutSeconds + graceMs / 1_000)
                }),
                (error) =>
                  error._tag === "BudgetExhausted"
                    ? problem(402, "budget_exhausted", error.message)
                    : fromStore(error)
              )
              const { env, imagePullCredentials } = payload
              yield* stored(
                resources.write(
                  orgId,
                  [
                    {
                      action: "create",
                      uid,
                      kind: "Execution",
                      projectId,
                      environment: null,
                      name: uid,
                      parentUid: projectId,
                      spec,
                      managedBy: "api",
                      secrets: {
                        ...(env === undefined ? {} : { env: Redacted.make(JSON.stringify(env)) }),
                        ...(imagePullCredentials === undefined
                          ? {}
                          : { imagePullCredentials: Redacted.make(JSON.stringify(imagePullCredentials)) })
                      }
                    }
                  ],
                  { ...caller.actor, outcome: 202 }
                )
              )
            })
            // What may have been made keeps its place; one that nothing is known of gives it back by itself.
            yield* Effect.tapError(making, ({ status }) =>
              status < 500 ? Effect.ignore(executions.leave(room)) : Effect.void
            )
            return yield* read(orgId, uid)
          })
        ),
        get: Effect.fnUntraced(function* () {
          const { orgId, uid } = yield* targetRecord
          return answer(ExecutionView, yield* read(orgId, uid))
        }),
        cancel: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          const { orgId, uid } = record
          const { again } = (yield* RequestScope).reservation
          if (again && storedSpec(record.spec).cancelRequested) return yield* read(orgId, uid)
          const { finishedAt, status } = yield* read(orgId, uid)
          if (finishedAt !== null)
            return yield* problem(409, "execution_ended", `The execution has ended already: ${status}`)
          yield* amend(record, (current) =>
            Effect.succeed({ spec: { ...storedSpec(current.spec), cancelRequested: true } })
          )
          return yield* read(orgId, uid)
        }),
        logs: Effect.fnUntraced(function* (request) {
          const { orgId, uid } = yield* targetRecord
          return yield* showLog(request, { orgId, uid }, logs.read, read(orgId, uid))
        })
      })
    )
  })
)

const executionView = (record: ExecutionRecord) => {
  const { spec, createdAt, startedAt, finishedAt, ...rest } = record
  const { cancelRequested: _, deployment, ...asked } = storedSpec(spec)
  return {
    ...rest,
    ...asked,
    ...(deployment && { deploymentId: deployment.uid }),
    createdAt: createdAt.toISOString(),
    startedAt: startedAt?.toISOString() ?? null,
    finishedAt: finishedAt?.toISOString() ?? null
  }
}
