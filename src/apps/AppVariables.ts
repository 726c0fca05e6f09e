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
import { type EnvironmentPlace, makePreviewTrust, type Standing } from "./preview-trust.ts"

interface Variable {
  readonly value: string
  readonly isForBuilds: boolean
}

export interface AppPlace {
  readonly orgId: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly spec: {
    /** Absent: nothing is to listen. */
    readonly port?: number
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
      } & Pick<Provision, "services" | "files" | "environmentUid">,
      StoreUnavailable | HostError
    >
    /** Those of them that are for builds too. Of a preview that is not trusted with this deployment there are none. */
    readonly forBuild: (
      place: Omit<EnvironmentPlace, "deployment"> & { readonly deployment: string }
    ) => Effect.Effect<Redacted.Redacted<Readonly<Record<string, string>>>, StoreUnavailable>
  }
>()("svc/apps/AppVariables") {
  static readonly layer = Layer.effect(
    AppVariables,
    Effect.gen(function* () {
      const resources = yield* Resources
      const secrets = yield* Secrets
      const environments = yield* EnvironmentServices
      const trust = yield* makePreviewTrust

      /** What users set in the environment. */
      const variablesOf = Effect.fnUntraced(function* (
        orgId: string,
        projectId: string,
        environment: string
      ) {
        const found = yield* resources.find(orgId, "EnvVariables", projectId, environment, envVariablesName)
        const own: Record<string, Variable> = {}
        if (Option.isNone(found)) return own
        const { variables, forBuilds } = yield* Effect.mapError(
          decode(found.value.spec),
          (cause) => new StoreUnavailable({ message: "The variables cannot be read", cause })
        )
        const values = yield* secrets.readAll({ orgId, uid: found.value.uid }, prefix)
        for (const [field, value] of values) {
          const key = field.slice(prefix.length)
          if (key in variables)
            own[key] = { value: Redacted.value(value), isForBuilds: forBuilds.includes(key) }
        }
        return own
      })

      /** Those of the environment itself count more than those that all previews share. */
      const setIn = Effect.fnUntraced(function* (
        { orgId, projectId, environment }: Omit<EnvironmentPlace, "deployment">,
        { isPreview, isTrusted }: Pick<Standing, "isPreview" | "isTrusted">
      ) {
        const shared = isPreview && isTrusted ? yield* variablesOf(orgId, projectId, sharedPreview) : {}
        const own = isTrusted ? yield* variablesOf(orgId, projectId, environment) : {}
        return Object.entries({ ...shared, ...own })
      })

      return AppVariables.of({
        of: Effect.fn("AppVariables.of")(function* ({ orgId, projectId, environment, spec }) {
          const gone = new StoreUnavailable({ message: "The environment of the app is not there" })
          if (projectId === null || environment === null) return yield* gone
          const { deployment } = spec
          const provision = yield* environments.provide({ orgId, projectId, environment, deployment })
          if (Option.isNone(provision)) return yield* gone
          const { variables, services, files, environmentUid } = provision.value
          const set = yield* setIn({ orgId, projectId, environment }, provision.value)
          const own = Object.fromEntries(set.map(([key, { value }]) => [key, value]))
          const port = spec.port === undefined ? {} : { PORT: String(spec.port) }
          const env = { ...Redacted.value(variables), ...own, ...port }
          return { env: Redacted.make(env), services, files, environmentUid }
        }),
        forBuild: Effect.fn("AppVariables.forBuild")(function* (place) {
          const standing = yield* trust.standingOf(place)
          if (standing === undefined)
            return yield* new StoreUnavailable({ message: "The environment of the app is not there" })
          const set = yield* setIn(place, standing)
          return Redacted.make(
            Object.fromEntries(
              set.flatMap(([key, { value, isForBuilds }]) => (isForBuilds ? [[key, value]] : []))
            )
          )
        })
      })
    })
  )
}
