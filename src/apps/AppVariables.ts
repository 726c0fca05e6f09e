/** What an app is told: the variables that its users set, before those that its environment has. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { EnvVariablesSpec, envVariablesName, variableField } from "#schemas/env-variables.ts"
import { sharedPreview } from "#schemas/names.ts"
import type { HostError } from "#src/infra/host/Host.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { EnvironmentServices, type Provision } from "./EnvironmentServices.ts"

export interface AppPlace {
  readonly orgId: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly spec: {
    readonly port: number
    /** That is to answer. */
    readonly deployment?: string
  }
}

const decode = Schema.decodeUnknownEffect(EnvVariablesSpec)
const prefix = variableField("")

export class AppVariables extends Context.Service<
  AppVariables,
  {
    readonly of: (app: AppPlace) => Effect.Effect<
      {
        readonly env: Redacted.Redacted<Readonly<Record<string, string>>>
      } & Pick<Provision, "services" | "files">,
      StoreUnavailable | HostError
    >
  }
>()("svc/apps/AppVariables") {
  static readonly layer = Layer.effect(
    AppVariables,
    Effect.gen(function* () {
      const resources = yield* Resources
      const secrets = yield* Secrets
      const environments = yield* EnvironmentServices

      /** What users set in the environment. */
      const variablesOf = Effect.fnUntraced(function* (
        orgId: string,
        projectId: string | null,
        environment: string | null
      ) {
        const found = yield* resources.find(orgId, "EnvVariables", projectId, environment, envVariablesName)
        const own: Record<string, string> = {}
        if (Option.isNone(found)) return own
        const { variables } = yield* Effect.mapError(
          decode(found.value.spec),
          (cause) => new StoreUnavailable({ message: "The variables cannot be read", cause })
        )
        const values = yield* secrets.readAll({ orgId, uid: found.value.uid }, prefix)
        for (const [field, value] of values) {
          const key = field.slice(prefix.length)
          if (key in variables) own[key] = Redacted.value(value)
        }
        return own
      })

      return AppVariables.of({
        of: Effect.fn("AppVariables.of")(function* ({ orgId, projectId, environment, spec }) {
          const provision =
            projectId === null || environment === null
              ? Option.none()
              : yield* environments.provide({ orgId, projectId, environment, deployment: spec.deployment })
          if (Option.isNone(provision))
            return yield* new StoreUnavailable({ message: "The environment of the app is not there" })
          const { variables, services, files, isPreview, isTrusted } = provision.value
          const shared = isPreview && isTrusted ? yield* variablesOf(orgId, projectId, sharedPreview) : {}
          const own = isTrusted ? yield* variablesOf(orgId, projectId, environment) : {}
          const env = { ...Redacted.value(variables), ...shared, ...own, PORT: String(spec.port) }
          return { env: Redacted.make(env), services, files }
        })
      })
    })
  )
}
