/** Making deployments: the app of an environment, made with its first one, and the deployment itself. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { App, AppSpec, appName } from "#schemas/app.ts"
import { Deployment, type DeploymentSpec } from "#schemas/deployment.ts"
import type { SecretValues } from "#src/store/change.ts"
import type { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"

export interface AppPlace {
  readonly orgId: string
  readonly projectId: string
  readonly environment: string
  readonly environmentUid: string
}

const decodeApp = Schema.decodeUnknownEffect(AppSpec)

/** Of several who make or choose at once, all find the same app. */
const again = Schedule.exponential("5 millis").pipe(Schedule.jittered)

export const findApp = (
  resources: Resources["Service"],
  { orgId, projectId, environment }: Omit<AppPlace, "environmentUid">
) =>
  Effect.map(
    resources.find(orgId, App.name, projectId, environment, appName),
    Option.filter(({ deletionRequestedAt }) => deletionRequestedAt === null)
  )

/** The app of the environment, made if this is its first deployment. It stays where it is. */
export const ensureApp = (
  resources: Resources["Service"],
  place: AppPlace,
  region: string | undefined,
  actor: Actor
) =>
  Effect.gen(function* () {
    const found = yield* findApp(resources, place)
    if (Option.isSome(found)) return yield* Effect.orDie(decodeApp(found.value.spec))
    const spec = yield* Effect.orDie(decodeApp({ region }))
    const change = {
      action: "create",
      uid: randomUUIDv7(),
      kind: App.name,
      projectId: place.projectId,
      environment: place.environment,
      name: appName,
      parentUid: place.environmentUid,
      spec,
      managedBy: "api"
    } as const
    yield* resources.write(place.orgId, [change], actor)
    return spec
  }).pipe(Effect.retry({ times: 10, schedule: again, while: ({ _tag }) => _tag === "NameTaken" }))

export const makeDeployment = (
  resources: Resources["Service"],
  { orgId, projectId, environment, environmentUid }: AppPlace,
  made: { readonly uid: string; readonly spec: DeploymentSpec; readonly secrets?: SecretValues },
  actor: Actor
) => {
  const { uid, spec, secrets } = made
  const change = {
    action: "create",
    uid,
    kind: Deployment.name,
    projectId,
    environment,
    name: uid,
    parentUid: environmentUid,
    spec,
    managedBy: "api",
    ...(secrets === undefined ? {} : { secrets })
  } as const
  return resources.write(orgId, [change], actor)
}
