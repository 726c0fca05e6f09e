/** What an app is told by its variables: those that its users set, and those that the platform knows. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { EnvVariablesSpec, envVariablesName, variableField } from "#schemas/env-variables.ts"
import { AppConfig } from "#src/config.ts"
import type { ReachableService } from "#src/infra/containers/ContainerEngine.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AppPlace {
  readonly orgId: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly spec: { readonly port: number }
}

const decode = Schema.decodeUnknownEffect(EnvVariablesSpec)
const prefix = variableField("")

export class AppVariables extends Context.Service<
  AppVariables,
  {
    readonly of: (app: AppPlace) => Effect.Effect<
      {
        readonly env: Redacted.Redacted<Readonly<Record<string, string>>>
        /** What of this machine it may reach. */
        readonly services: ReadonlyArray<ReachableService>
      },
      StoreUnavailable
    >
  }
>()("svc/apps/AppVariables") {
  static readonly layer = Layer.effect(
    AppVariables,
    Effect.gen(function* () {
      const resources = yield* Resources
      const secrets = yield* Secrets
      const tokens = yield* AppServiceTokens
      const { publicUrl } = yield* AppConfig
      return AppVariables.of({
        of: Effect.fn("AppVariables.of")(function* ({ orgId, projectId, environment, spec }) {
          const found = yield* resources.find(orgId, "EnvVariables", projectId, environment, envVariablesName)
          const own: Record<string, string> = {}
          if (Option.isSome(found)) {
            const { variables } = yield* Effect.mapError(
              decode(found.value.spec),
              (cause) => new StoreUnavailable({ message: "The variables cannot be read", cause })
            )
            const values = yield* secrets.readAll({ orgId, uid: found.value.uid }, prefix)
            for (const [field, value] of values) {
              const key = field.slice(prefix.length)
              if (key in variables) own[key] = Redacted.value(value)
            }
          }
          const token =
            projectId === null || environment === null
              ? Option.none()
              : yield* tokens.current(orgId, projectId, environment)
          const platform = {
            PORT: String(spec.port),
            SVC_ENVIRONMENT: environment ?? "",
            SVC_API_URL: publicUrl,
            ...(Option.isSome(token) ? { APP_SERVICE_TOKEN: Redacted.value(token.value) } : {})
          }
          return { env: Redacted.make({ ...platform, ...own, PORT: platform.PORT }), services: [] }
        })
      })
    })
  )
}
