/** What instances are made of: the image of their deployment, and what was kept of their revision when it was begun. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { DeploymentSpec } from "#schemas/deployment.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import type { Instance } from "#src/apps/app-state.ts"
import { revisionField } from "#src/apps/request-changes.ts"
import { settings } from "#src/apps/settings.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import { Retryable, Terminal } from "#src/engine/Reconciler.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { type AppResource, retryable } from "./resource.ts"
import type { Revision } from "./situation.ts"

const decodeSpec = Schema.decodeUnknownEffect(DeploymentSpec)
/** What makes one revision differ from another of the same deployment. It is sealed: it has the variables. */
const Kept = Schema.fromJsonString(
  Schema.Struct({
    cpus: Schema.Finite,
    memoryMb: Schema.Int,
    env: Schema.Record(Schema.String, Schema.String)
  })
)
const decodeKept = Schema.decodeUnknownEffect(Kept)
const encodeKept = Schema.encodeSync(Kept)
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
  const secrets = yield* Secrets
  const { appRuntime: runtime } = yield* settings

  const variablesOf = (app: AppResource) => retryable(variables.of(app))
  /** What an instance may have goes by what it is itself, and not by what is to answer by now. */
  const variablesFor = (app: AppResource, { deployment }: Pick<Instance, "deployment">) =>
    variablesOf({ ...app, spec: { ...app.spec, deployment } })

  /** A keyed fingerprint: it is stored, and made of secrets among other things. */
  const revisionFor = (app: AppResource, env: Redacted.Redacted<Readonly<Record<string, string>>>) => {
    const { deployment, cpus, memoryMb, port, restarts } = app.spec
    const pairs = Object.entries(Redacted.value(env)).sort(([a], [b]) => (a < b ? -1 : 1))
    return fingerprint(JSON.stringify([deployment, cpus, memoryMb, port, restarts, pairs]))
  }
  const revisionOf = Effect.fnUntraced(function* (app: AppResource) {
    const { deployment } = app.spec
    if (deployment === undefined) return undefined
    const { env } = yield* variablesOf(app)
    return { revision: revisionFor(app, env), deployment } satisfies Revision
  })

  const keptOf = (app: AppResource, revision: string) => ({
    orgId: app.orgId,
    uid: app.uid,
    field: revisionField(revision)
  })
  /**
   * Before the first instance of a revision: later ones are started with the same variables, also while others are set by
   * then. Of a revision that is not that of now nothing is known but what was kept.
   */
  const keepRevision = Effect.fnUntraced(function* (app: AppResource, revision: string) {
    const { env } = yield* variablesOf(app)
    if (revisionFor(app, env) !== revision) return
    const { cpus, memoryMb } = app.spec
    const sealed = Redacted.make(encodeKept({ cpus, memoryMb, env: Redacted.value(env) }))
    yield* retryable(secrets.write(keptOf(app, revision), sealed))
  })

  const planOf = Effect.fnUntraced(function* (app: AppResource, instance: Instance) {
    const { orgId, uid, parentUid } = app
    const ref = { orgId, uid: instance.deployment }
    const found = yield* retryable(deployments.find(ref))
    const record = yield* retryable(resources.get(orgId, instance.deployment))
    const imageId = Option.getOrUndefined(found)?.imageId
    if (imageId === undefined || imageId === null || Option.isNone(record))
      return yield* new Retryable({ message: "The image of the deployment is not known" })
    const { command } = yield* retryable(decodeSpec(record.value.spec))
    const sealed = yield* retryable(secrets.read(keptOf(app, instance.revision)))
    const now = yield* variablesFor(app, instance)
    // Nothing was kept by the former release.
    const { cpus, memoryMb, env } = Option.isNone(sealed)
      ? { ...app.spec, env: Redacted.value(now.env) }
      : yield* Effect.mapError(
          decodeKept(Redacted.value(sealed.value)),
          () => new Terminal({ message: "The variables that were kept of the revision cannot be read" })
        )
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
      env: Redacted.make(env),
      cpus,
      cpuShares: Math.max(2, Math.round(cpus * 256)),
      memoryMb,
      runtime,
      network: { kind: "environment" as const, orgId, environmentUid: parentUid ?? "" },
      files: now.files,
      tmpMb,
      oomScore
    }
  })

  const servicesOf = (app: AppResource, instance: Pick<Instance, "deployment">) =>
    Effect.map(variablesFor(app, instance), ({ services }) => services)

  return { revisionOf, keepRevision, planOf, runtime, servicesOf }
})
