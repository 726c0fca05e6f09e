/**
 * What the engine is asked for: the image, with the credentials that were sealed, and the container with its variables.
 * One that was asked for with services gets besides what the project's production environment provides, and reaches its
 * servers; one of a deployment gets what an instance of it would.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { defaultEnvironment } from "#schemas/names.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import { EnvironmentServices } from "#src/apps/EnvironmentServices.ts"
import { Terminal } from "#src/engine/Reconciler.ts"
import { parseImage } from "#src/executions/image.ts"
import type { Run } from "#src/executions/Runs.ts"
import { settings } from "#src/executions/settings.ts"
import type { ContainerPlan } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { type ExecutionResource, retryable } from "./observe.ts"

const Env = Schema.fromJsonString(Schema.Record(Schema.String, Schema.String))
const Credentials = Schema.fromJsonString(
  Schema.Struct({ registry: Schema.String, username: Schema.String, password: Schema.String })
)

export const makePlans = Effect.gen(function* () {
  const secrets = yield* Secrets
  const installation = yield* Installation
  const { sandboxRuntime } = yield* settings
  const environments = yield* EnvironmentServices
  const appVariables = yield* AppVariables

  /** One that is configured no more is never replaced by another. */
  const runtimeOf = ({ spec }: Pick<ExecutionResource, "spec">): string | undefined =>
    spec.runtime.nestedContainers ? (sandboxRuntime ?? "none") : undefined

  const pullRequest = Effect.fnUntraced(function* ({ orgId, uid, spec }: ExecutionResource) {
    const sealed = yield* retryable(secrets.read({ orgId, uid, field: "imagePullCredentials" }))
    const credentials = Option.isNone(sealed)
      ? undefined
      : yield* Effect.mapError(
          Schema.decodeUnknownEffect(Credentials)(Redacted.value(sealed.value)),
          () => new Terminal({ message: "The stored credentials of the registry cannot be read" })
        )
    return {
      reference: parseImage(spec.image)?.canonical ?? spec.image,
      credentials:
        credentials === undefined
          ? undefined
          : { ...credentials, password: Redacted.make(credentials.password) }
    }
  })

  /** None: it was asked for without services, or the project or its environment is going. */
  const provisionOf = ({ orgId, projectId, spec }: ExecutionResource) =>
    !spec.services || projectId === null
      ? Effect.succeedNone
      : spec.deployment === undefined
        ? retryable(environments.provide({ orgId, projectId, environment: defaultEnvironment }))
        : retryable(
            appVariables.of({
              orgId,
              projectId,
              environment: spec.deployment.environment,
              spec: { deployment: spec.deployment.uid }
            })
          ).pipe(Effect.map(({ env, ...rest }) => Option.some({ ...rest, variables: env })))

  const planOf = Effect.fnUntraced(function* (execution: ExecutionResource, run: Run) {
    const { orgId, uid, spec, fence } = execution
    const sealed = yield* retryable(secrets.read({ orgId, uid, field: "env" }))
    const env = Option.isNone(sealed)
      ? {}
      : yield* Effect.mapError(
          Schema.decodeUnknownEffect(Env)(Redacted.value(sealed.value)),
          () => new Terminal({ message: "The stored variables cannot be read" })
        )
    const { cpus, cpuKind, memoryMb } = spec.resources
    const provision = Option.getOrUndefined(yield* provisionOf(execution))
    const plan: ContainerPlan = {
      name: installation.nameOf(uid),
      labels: {
        ...installation.labels,
        "svc.organization": orgId,
        "svc.execution": uid,
        "svc.fence": String(fence)
      },
      image: run.imageId ?? "",
      command: spec.command,
      env: Redacted.make({
        ...(provision === undefined ? {} : Redacted.value(provision.variables)),
        ...env
      }),
      cpus,
      cpuShares: Math.max(2, Math.round(cpus * (cpuKind === "performance" ? 1024 : 256))),
      memoryMb,
      runtime: runtimeOf({ spec }),
      network:
        provision === undefined
          ? { kind: "isolated" }
          : { kind: "environment", orgId, environmentUid: provision.environmentUid },
      files: provision?.files ?? {}
    }
    return plan
  })

  /** What it reaches of this machine when it is started. */
  const servicesOf = (execution: ExecutionResource) =>
    Effect.map(provisionOf(execution), (provision) =>
      Option.getOrUndefined(Option.map(provision, ({ services }) => services))
    )

  return { pullRequest, planOf, runtimeOf, servicesOf }
})
