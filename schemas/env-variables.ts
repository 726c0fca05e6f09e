/** `EnvVariables`: the sealed variables of one environment. */
import * as Schema from "effect/Schema"
import { warning } from "./condition.ts"
import { withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { masked, section } from "./manifest-mapping.ts"
import { defaultEnvironment, VariableKey } from "./names.ts"

/** The one name that the resource has in its environment. */
export const envVariablesName = "variables"
/** Bytes of one value: enough for certificates and service accounts. */
const longestVariable = 65_536
/** Variables of one environment. */
export const mostVariables = 1_000
/** The value of a variable. Counting bytes is for texts that might have too many. */
export const VariableValue = Schema.String.check(
  Schema.makeFilter((value: string) =>
    value.length * 3 <= longestVariable || new TextEncoder().encode(value).length <= longestVariable
      ? undefined
      : `must have at most ${longestVariable} bytes`
  )
).annotate({ description: `At most ${longestVariable} bytes of UTF-8` })
/** Each once, in the order in which they are kept. */
export const sortedNames = (names: Iterable<string>): ReadonlyArray<string> => [...new Set(names)].sort()

/** Secret field under which the value of one variable is sealed. */
export const variableField = (key: string): string => `variable/${key}`

export const EnvVariablesSpec = Schema.Struct({
  /** For each key the keyed fingerprint of its value, so that a change is seen without knowing the value. */
  variables: withDefault(
    Schema.Record(VariableKey, Schema.String).check(Schema.isMaxProperties(mostVariables)),
    {}
  ),
  /** Names of those that builds are given as well, sorted. */
  forBuilds: withDefault(Schema.Array(VariableKey).check(Schema.isMaxLength(mostVariables)), [])
}).annotate({ identifier: "EnvVariablesSpec" })
export type EnvVariablesSpec = typeof EnvVariablesSpec.Type

export const EnvVariablesStatus = Schema.Struct({ count: Schema.Int }).annotate({
  identifier: "EnvVariablesStatus"
})
export type EnvVariablesStatus = typeof EnvVariablesStatus.Type

export const EnvVariables = defineKind({
  name: "EnvVariables",
  summary: "The encrypted variables of one environment.",
  scope: "environment",
  spec: EnvVariablesSpec,
  status: EnvVariablesStatus,
  fields: Object.keys(EnvVariablesSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: true,
  deleteRole: "admin",
  reasons: { Unreadable: warning("A sealed value cannot be opened with the keys at hand") },
  sealed: { field: "variables", secret: variableField, marks: "forBuilds" },
  // A manifest tells of production's variables only: those of other environments are unmanaged.
  manifest: section({
    section: "env",
    fields: {
      env: Schema.optionalKey(
        Schema.Record(VariableKey, VariableValue)
          .check(Schema.isMaxProperties(mostVariables))
          .annotate({ description: `Variables of production; ${masked} leaves a value as it is` })
      ),
      envForBuilds: Schema.optionalKey(
        Schema.Array(VariableKey).check(Schema.isMaxLength(mostVariables)).annotate({
          description:
            "Names of those of `env` that builds are given as well; left out, the marks stay as they are"
        })
      )
    },
    entries: ({ env, envForBuilds }) =>
      env === undefined
        ? undefined
        : [
            {
              path: ["env"],
              environment: defaultEnvironment,
              name: envVariablesName,
              spec: {
                variables: env,
                ...(envForBuilds === undefined ? {} : { forBuilds: sortedNames(envForBuilds) })
              }
            }
          ],
    manages: ({ environment }) => environment === defaultEnvironment,
    assemble: ([production]) => {
      const { variables, forBuilds } = production?.spec ?? {}
      const marked = Array.isArray(forBuilds) && forBuilds.length > 0 ? { envForBuilds: forBuilds } : {}
      return variables === undefined ? {} : { env: variables, ...marked }
    }
  }),
  deadlineSeconds: 300
})
