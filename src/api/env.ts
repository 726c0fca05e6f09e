/** Handlers of `env.*`: the variables of an environment. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { EnvVariablesSpec, envVariablesName, variableField } from "#schemas/env-variables.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { Api } from "./definition/api.ts"
import { mostVariables } from "./definition/env.ts"
import { RequestScope } from "./definition/scope.ts"
import { guard } from "./gate.ts"
import { fromStore, invalid, notFound } from "./problem.ts"

const decodeSpec = Schema.decodeUnknownEffect(EnvVariablesSpec)
const prefix = variableField("")

/** Two callers may set variables at once; each merges into what the other stored. */
const merging = <A, E extends { readonly _tag: string }, R>(self: Effect.Effect<A, E, R>) =>
  Effect.retry(self, {
    times: 8,
    schedule: Schedule.spaced("20 millis").pipe(Schedule.jittered),
    while: (error) => error._tag === "RevisionConflict" || error._tag === "NameTaken"
  })

export const layer = HttpApiBuilder.group(
  Api,
  "env",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const secrets = yield* Secrets
    const fingerprint = yield* Fingerprint

    const current = Effect.gen(function* () {
      const { orgId, place, environment } = yield* RequestScope
      const found = yield* resources.find(
        orgId,
        "EnvVariables",
        place?.projectId ?? null,
        environment ?? null,
        envVariablesName
      )
      if (Option.isNone(found)) return undefined
      const spec = yield* Effect.orDie(decodeSpec(found.value.spec))
      return { record: found.value, variables: spec.variables }
    })

    return handlers.handleAll(
      guard(Api.groups.env)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const now = yield* Effect.mapError(current, fromStore)
          if (now === undefined) return []
          const values = yield* Effect.mapError(
            secrets.readAll({ orgId, uid: now.record.uid }, prefix),
            fromStore
          )
          return [...values]
            .map(([field, value]) => ({ key: field.slice(prefix.length), value: Redacted.value(value) }))
            .filter(({ key }) => key in now.variables)
        }),
        set: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, place, environment, caller } = yield* RequestScope
          const values = new Map(payload.vars.map(({ key, value }): [string, string] => [key, value]))
          const added = Object.fromEntries([...values].map(([key, value]) => [key, fingerprint(value)]))
          const sealed = Object.fromEntries(
            [...values].map(([key, value]) => [variableField(key), Redacted.make(value)])
          )
          const write = Effect.gen(function* () {
            const now = yield* current
            const variables = { ...now?.variables, ...added }
            if (Object.keys(variables).length > mostVariables) return { tooMany: true }
            yield* resources.write(
              orgId,
              [
                now === undefined
                  ? {
                      action: "create",
                      uid: randomUUIDv7(),
                      kind: "EnvVariables",
                      projectId: place?.projectId ?? null,
                      environment: environment ?? null,
                      name: envVariablesName,
                      parentUid: place?.environmentUid ?? null,
                      spec: { variables },
                      managedBy: "api",
                      secrets: sealed
                    }
                  : {
                      action: "update",
                      uid: now.record.uid,
                      spec: { variables },
                      expectedRevision: now.record.revision,
                      secrets: sealed
                    }
              ],
              caller.actor
            )
            return { tooMany: false }
          })
          const { tooMany } = yield* Effect.mapError(merging(write), fromStore)
          if (tooMany) {
            return yield* invalid([
              {
                pointer: "/vars",
                message: `would make more than ${mostVariables} variables in the environment`
              }
            ])
          }
          return { count: values.size }
        }),
        delete: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const write = Effect.gen(function* () {
            const now = yield* current
            if (now === undefined || !(params.key in now.variables)) return false
            const { [params.key]: _gone, ...variables } = now.variables
            const change = { uid: now.record.uid, spec: { variables }, expectedRevision: now.record.revision }
            yield* resources.write(orgId, [{ action: "update", ...change }], caller.actor)
            return true
          })
          if (!(yield* Effect.mapError(merging(write), fromStore))) {
            return yield* notFound("variable in this environment")
          }
          return { ok: true as const }
        })
      })
    )
  })
)
