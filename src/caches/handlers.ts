/** Handlers of `caches.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Cache, CacheSpec, CacheStatus } from "#schemas/cache.ts"
import { afterCreation, caCertificateUrl, passwordField, passwordOf, rotate } from "#src/api/credentials.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { ReconcileNow } from "#src/api/ReconcileNow.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import { serviceStatus } from "#src/api/views.ts"
import { AppConfig } from "#src/config.ts"
import { redisUrl } from "#src/infra/connection-strings.ts"
import { appUser } from "#src/infra/redis/settings.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { CacheView } from "./api.ts"
import { cacheView } from "./view.ts"

const decoder = Schema.decodeUnknownEffect(CacheSpec)
/** What was stored was valid; what a request asks for has passed the schema of its body. */
const decodeSpec = (spec: unknown) => Effect.orDie(decoder(spec))
const decodeStatus = Schema.decodeUnknownEffect(CacheStatus)

const connectionString = (record: ResourceRecord, password: Redacted.Redacted) =>
  Effect.map(Effect.orDie(decodeStatus(record.status)), ({ host, port }) =>
    redisUrl({ user: appUser, host, port }, password)
  )

export const layer = HttpApiBuilder.group(
  Api,
  "caches",
  Effect.fnUntraced(function* (handlers) {
    yield* ReconcileNow
    yield* AppConfig
    const caches = yield* resourceHandlers(Cache, {
      view: CacheView,
      viewer: () => Effect.succeed(cacheView)
    })
    return handlers.handleAll(
      handlersOf(Api.groups.caches)({
        list: caches.list,
        create: caches.createAnd(
          Effect.fnUntraced(function* ({ payload: { name, ...spec } }) {
            const { reservation } = yield* RequestScope
            return { name, spec, secrets: { [passwordField]: passwordOf(reservation) } }
          }),
          Effect.fnUntraced(function* ({ uid, name }) {
            const { reservation } = yield* RequestScope
            const { record, shown } = yield* afterCreation(uid, decodeSpec)
            return {
              id: uid,
              name,
              status: record === undefined ? ("provisioning" as const) : serviceStatus(record),
              connectionString:
                shown === undefined ? null : yield* connectionString(shown, passwordOf(reservation)),
              caCertificateUrl: yield* caCertificateUrl
            }
          })
        ),
        get: caches.get,
        update: caches.update(({ payload }) => Effect.succeed((current) => ({ ...current, ...payload }))),
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
        delete: caches.delete()
      })
    )
  })
)
