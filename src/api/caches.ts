/** Handlers of `caches.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { CacheSpec, CacheStatus } from "#schemas/cache.ts"
import { AppConfig } from "#src/config.ts"
import { Engine } from "#src/engine/Engine.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { answer } from "./answer.ts"
import { afterCreation, caCertificateUrl, passwordField, passwordOf, rotate } from "./credentials.ts"
import { Api } from "./definition/api.ts"
import { CacheList, CacheView } from "./definition/caches.ts"
import { RequestScope } from "./definition/scope.ts"
import { guard } from "./guard.ts"
import { fromStore } from "./problem.ts"
import { targetEnvironment, targetProject, targetRecord } from "./target.ts"
import { cacheView, serviceStatus, viewAll } from "./views.ts"
import { amend, createdBefore, remove, stored } from "./writing.ts"

const decoder = Schema.decodeUnknownEffect(CacheSpec)
/** What was stored was valid; what a request asks for has passed the schema of its body. */
const decodeSpec = (spec: unknown) => Effect.orDie(decoder(spec))
const decodeStatus = Schema.decodeUnknownEffect(CacheStatus)

const connectionString = (record: ResourceRecord, password: Redacted.Redacted) =>
  Effect.map(
    Effect.orDie(decodeStatus(record.status)),
    ({ host, port }) => `rediss://svc:${Redacted.value(password)}@${host}:${port}`
  )

const withTag = (record: ResourceRecord) => answer(CacheView, cacheView(record), record)

export const layer = HttpApiBuilder.group(
  Api,
  "caches",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    yield* Engine
    yield* AppConfig
    return handlers.handleAll(
      guard(Api.groups.caches)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { projectId, environment } = yield* targetProject
          const records = yield* Effect.mapError(
            resources.listKind(orgId, "Cache", projectId, environment),
            fromStore
          )
          return answer(CacheList, yield* viewAll(records, cacheView))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const { projectId, environment, environmentUid } = yield* targetEnvironment
          const { name, ...asked } = payload
          const { uid } = reservation
          const password = passwordOf(reservation)
          const create = stored(
            resources.write(
              orgId,
              [
                {
                  action: "create",
                  uid,
                  kind: "Cache",
                  projectId,
                  environment,
                  name,
                  parentUid: environmentUid,
                  spec: yield* decodeSpec(asked),
                  managedBy: "api",
                  secrets: { [passwordField]: password }
                }
              ],
              { ...caller.actor, outcome: 201 }
            )
          )
          if ((yield* createdBefore) === undefined) yield* create
          const { record, shown } = yield* afterCreation(uid, decodeSpec)
          return {
            id: uid,
            name,
            status: record === undefined ? ("provisioning" as const) : serviceStatus(record),
            connectionString: shown === undefined ? null : yield* connectionString(shown, password),
            caCertificateUrl: yield* caCertificateUrl
          }
        }),
        get: () => Effect.map(targetRecord, withTag),
        update: Effect.fnUntraced(function* ({ payload }) {
          const after = yield* amend(yield* targetRecord, (record) =>
            Effect.map(decodeSpec(record.spec), (spec) => ({
              spec: { ...spec, ...payload },
              managedBy: "api"
            }))
          )
          return withTag(after)
        }),
        rotateCredentials: Effect.fnUntraced(function* () {
          const { record, password } = yield* rotate(yield* targetRecord, decodeSpec)
          return {
            id: record.uid,
            name: record.name,
            status: serviceStatus(record),
            connectionString: yield* connectionString(record, password),
            caCertificateUrl: yield* caCertificateUrl
          }
        }),
        delete: () => Effect.flatMap(targetRecord, remove)
      })
    )
  })
)
