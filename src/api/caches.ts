/** Handlers of `caches.*`. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { CacheSpec, CacheStatus } from "#schemas/cache.ts"
import { AppConfig } from "#src/config.ts"
import { Engine } from "#src/engine/Engine.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { caCertificateUrl, newPassword, passwordField, rotate, whenReady } from "./credentials.ts"
import { Api } from "./definition/api.ts"
import { RequestScope } from "./definition/scope.ts"
import { guard } from "./gate.ts"
import { fromStore, notFound } from "./problem.ts"
import { cacheView, etagOf, serviceStatus } from "./views.ts"
import { checkIfMatch, remove, stored } from "./writing.ts"

const decodeSpec = Schema.decodeUnknownEffect(CacheSpec)
const decodeStatus = Schema.decodeUnknownEffect(CacheStatus)

const connectionString = (record: ResourceRecord, password: Redacted.Redacted) =>
  Effect.map(
    Effect.orDie(decodeStatus(record.status)),
    ({ host, port }) => `rediss://svc:${Redacted.value(password)}@${host}:${port}`
  )

/** The record that the gate found. */
const theCache = Effect.flatMap(RequestScope, ({ record }) =>
  record === undefined ? Effect.fail(notFound("cache")) : Effect.succeed(record)
)

const shown = (record: ResourceRecord) =>
  Effect.map(cacheView(record), (body) =>
    HttpApiSchema.withHeaders({ body, headers: { etag: etagOf(record) } })
  )

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
          const { orgId, place, environment } = yield* RequestScope
          const records = yield* Effect.mapError(
            resources.listKind(orgId, "Cache", place?.projectId ?? "", environment),
            fromStore
          )
          return yield* Effect.forEach(records, cacheView)
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, place, environment, caller } = yield* RequestScope
          const { name, ...asked } = payload
          const uid = randomUUIDv7()
          const password = newPassword()
          yield* stored(
            resources.write(
              orgId,
              [
                {
                  action: "create",
                  uid,
                  kind: "Cache",
                  projectId: place?.projectId ?? null,
                  environment: environment ?? null,
                  name,
                  parentUid: place?.environmentUid ?? null,
                  spec: yield* Effect.orDie(decodeSpec(asked)),
                  managedBy: "api",
                  secrets: { [passwordField]: password }
                }
              ],
              { ...caller.actor, outcome: 201 }
            )
          )
          const ready = yield* whenReady(orgId, uid)
          return {
            id: uid,
            name,
            status: ready === undefined ? ("provisioning" as const) : serviceStatus(ready),
            connectionString: ready === undefined ? null : yield* connectionString(ready, password),
            caCertificateUrl: yield* caCertificateUrl
          }
        }),
        get: () => Effect.flatMap(theCache, shown),
        update: Effect.fnUntraced(function* ({ payload, headers }) {
          const { orgId, caller } = yield* RequestScope
          const record = yield* theCache
          yield* checkIfMatch(headers["if-match"], record)
          const spec = { ...(yield* Effect.orDie(decodeSpec(record.spec))), ...payload }
          const change = {
            uid: record.uid,
            spec,
            expectedRevision: record.revision,
            managedBy: "api"
          } as const
          yield* stored(resources.write(orgId, [{ action: "update", ...change }], caller.actor))
          const after = yield* Effect.mapError(resources.get(orgId, record.uid), fromStore)
          return yield* shown(Option.getOrElse(after, () => record))
        }),
        rotateCredentials: Effect.fnUntraced(function* () {
          const before = yield* theCache
          const { record, password } = yield* rotate(before, yield* Effect.orDie(decodeSpec(before.spec)))
          return {
            id: record.uid,
            name: record.name,
            status: serviceStatus(record),
            connectionString: yield* connectionString(record, password),
            caCertificateUrl: yield* caCertificateUrl
          }
        }),
        delete: Effect.fnUntraced(function* ({ headers }) {
          return yield* remove(yield* theCache, headers["if-match"])
        })
      })
    )
  })
)
