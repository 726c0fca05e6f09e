/** Handlers of `env.*`: the variables of an environment. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import {
  EnvVariablesSpec,
  envVariablesName,
  mostVariables,
  sortedNames,
  variableField
} from "#schemas/env-variables.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, type Problem } from "#src/api/problem.ts"
import { targetEnvironment } from "#src/api/target.ts"
import { precondition } from "#src/api/writing.ts"
import type { Change } from "#src/store/change.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "#src/store/errors.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { Secrets } from "#src/store/Secrets.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { VariableList } from "./api.ts"

const decodeSpec = Schema.decodeUnknownEffect(EnvVariablesSpec)
const prefix = variableField("")

const tooMany = invalid([
  { pointer: "/vars", message: `would make more than ${mostVariables} variables in the environment` }
])

/** Two callers may set variables at once; each merges into what the other stored. */
const merging = <R>(
  self: Effect.Effect<void, Problem | NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable, R>
) =>
  self.pipe(
    Effect.retry({
      times: 40,
      schedule: Schedule.min([Schedule.exponential("5 millis"), Schedule.spaced("100 millis")]).pipe(
        Schedule.jittered
      ),
      while: (error) => error._tag === "RevisionConflict" || error._tag === "NameTaken"
    }),
    Effect.mapError((error) => (error._tag === "Problem" ? error : fromStore(error)))
  )

export const layer = HttpApiBuilder.group(
  Api,
  "env",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const secrets = yield* Secrets
    const fingerprint = yield* Fingerprint

    const current = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId, environment } = yield* targetEnvironment
      const found = yield* resources.find(orgId, "EnvVariables", projectId, environment, envVariablesName)
      // What is being deleted gives way to what takes its place.
      if (Option.isNone(found) || found.value.deletionRequestedAt !== null) return undefined
      const spec = yield* Effect.orDie(decodeSpec(found.value.spec))
      return { record: found.value, ...spec }
    })

    return handlers.handleAll(
      handlersOf(Api.groups.env)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const now = yield* Effect.mapError(current, fromStore)
          if (now === undefined) return []
          const values = yield* Effect.mapError(
            secrets.readAll({ orgId, uid: now.record.uid }, prefix),
            fromStore
          )
          const variables = [...values]
            .map(([field, value]) => ({ key: field.slice(prefix.length), value: Redacted.value(value) }))
            .filter(({ key }) => key in now.variables)
            .map((one) => (now.forBuilds.includes(one.key) ? { ...one, build: true } : one))
          return answer(VariableList, variables, now.record)
        }),
        set: billedLate(
          Effect.fnUntraced(function* ({ payload }) {
            const { orgId, caller } = yield* RequestScope
            const { projectId, environment, environmentUid } = yield* targetEnvironment
            const values = new Map(payload.vars.map(({ key, value }): [string, string] => [key, value]))
            const added = Object.fromEntries([...values].map(([key, value]) => [key, fingerprint(value)]))
            const marks = new Map(payload.vars.map(({ key, build }) => [key, build]))
            const sealed = Object.fromEntries(
              [...values].map(([key, value]) => [variableField(key), Redacted.make(value)])
            )
            const write = Effect.gen(function* () {
              const now = yield* current
              const variables = { ...now?.variables, ...added }
              if (Object.keys(variables).length > mostVariables) return yield* tooMany
              const forBuilds = sortedNames([
                ...(now?.forBuilds ?? []).filter((key) => marks.get(key) !== false),
                ...[...marks].flatMap(([key, build]) => (build === true ? [key] : []))
              ])
              const spec = { variables, forBuilds }
              yield* billing
              const expected = yield* precondition(now?.record)
              const change: Change =
                now === undefined
                  ? {
                      action: "create",
                      uid: randomUUIDv7(),
                      kind: "EnvVariables",
                      projectId,
                      environment,
                      name: envVariablesName,
                      parentUid: environmentUid,
                      spec,
                      managedBy: "api",
                      secrets: sealed
                    }
                  : { ...onTopOf(now.record), ...expected, spec, secrets: sealed }
              yield* resources.write(orgId, [change], caller.actor)
            })
            yield* merging(write)
            return { count: values.size }
          })
        ),
        delete: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const write = Effect.gen(function* () {
            const now = yield* current
            if (now === undefined || !(params.key in now.variables)) {
              return yield* notFound("variable in this environment")
            }
            const expected = yield* precondition(now.record)
            const { [params.key]: _gone, ...variables } = now.variables
            const forBuilds = now.forBuilds.filter((key) => key !== params.key)
            const change = { ...onTopOf(now.record), ...expected, spec: { variables, forBuilds } }
            yield* resources.write(orgId, [change], caller.actor)
          })
          yield* merging(write)
          return { ok: true as const }
        })
      })
    )
  })
)

/** Reports of the engine leave the generation alone: only another change of the variables is in the way. */
const onTopOf = (record: ResourceRecord) =>
  ({ action: "update", uid: record.uid, expectedGeneration: record.generation }) as const
