/** What instances are made of: the image of their deployment, the size that the app has, and its variables. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { DeploymentSpec } from "#schemas/deployment.ts"
import type { Instance } from "#src/apps/Apps.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import { Retryable } from "#src/engine/Reconciler.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Resources } from "#src/store/Resources.ts"
import { type AppResource, retryable } from "./resource.ts"
import type { Revision } from "./state-machine.ts"

const decodeSpec = Schema.decodeUnknownEffect(DeploymentSpec)
/** MiB of `/tmp`, which counts for the memory of an instance. */
const tmpMb = 64
/** Above servers of databases and caches: of what is on a machine apps are ended first. */
const oomScore = 600

export const makePlans = Effect.gen(function* () {
  const deployments = yield* Deployments
  const resources = yield* Resources
  const installation = yield* Installation
  const variables = yield* AppVariables
  const fingerprint = yield* Fingerprint

  const variablesOf = (app: AppResource) => retryable(variables.of(app))
  /** What an instance may have goes by what it is itself, and not by what is to answer by now. */
  const variablesFor = (app: AppResource, { deployment }: Pick<Instance, "deployment">) =>
    variablesOf({ ...app, spec: { ...app.spec, deployment } })

  /** A keyed fingerprint: it is stored, and made of secrets among other things. */
  const revisionOf = Effect.fnUntraced(function* (app: AppResource) {
    const { deployment, cpus, memoryMb, port, restarts } = app.spec
    if (deployment === undefined) return undefined
    const { env } = yield* variablesOf(app)
    const pairs = Object.entries(Redacted.value(env)).sort(([a], [b]) => (a < b ? -1 : 1))
    const revision = fingerprint(JSON.stringify([deployment, cpus, memoryMb, port, restarts, pairs]))
    return { revision, deployment } satisfies Revision
  })

  const planOf = Effect.fnUntraced(function* (app: AppResource, instance: Instance) {
    const { orgId, uid, parentUid, spec } = app
    const ref = { orgId, uid: instance.deployment }
    const found = yield* retryable(deployments.find(ref))
    const record = yield* retryable(resources.get(orgId, instance.deployment))
    const imageId = Option.getOrUndefined(found)?.imageId
    if (imageId === undefined || imageId === null || Option.isNone(record))
      return yield* new Retryable({ message: "The image of the deployment is not known" })
    const { command } = yield* retryable(decodeSpec(record.value.spec))
    const { env, files } = yield* variablesFor(app, instance)
    return {
      name: installation.nameOf(instance.uid),
      labels: {
        ...installation.labels,
        "svc.organization": orgId,
        "svc.app": uid,
        "svc.instance": instance.uid,
        "svc.deployment": instance.deployment
      },
      image: imageId,
      command,
      env,
      cpus: spec.cpus,
      cpuShares: Math.max(2, Math.round(spec.cpus * 256)),
      memoryMb: spec.memoryMb,
      runtime: undefined,
      network: { kind: "environment" as const, orgId, environmentUid: parentUid ?? "" },
      files,
      tmpMb,
      oomScore
    }
  })

  const servicesOf = (app: AppResource, instance: Pick<Instance, "deployment">) =>
    Effect.map(variablesFor(app, instance), ({ services }) => services)

  return { revisionOf, planOf, servicesOf }
})
