/** Handlers of `database.*`: the one database of an environment. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Database, DatabaseSpec, DatabaseStatus, defaultDatabaseName } from "#schemas/database.ts"
import { afterCreation, caCertificateUrl, passwordField, passwordOf, rotate } from "#src/api/credentials.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { ReconcileNow } from "#src/api/ReconcileNow.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetEnvironment } from "#src/api/target.ts"
import { serviceStatus } from "#src/api/views.ts"
import { AppConfig } from "#src/config.ts"
import { postgresUrl } from "#src/infra/connection-strings.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { DatabaseView } from "./api.ts"
import { databaseView } from "./view.ts"

const decoder = Schema.decodeUnknownEffect(DatabaseSpec)
/** What was stored was valid; what a request asks for has passed the schema of its body. */
const decodeSpec = (spec: unknown) => Effect.orDie(decoder(spec))
const decodeStatus = Schema.decodeUnknownEffect(DatabaseStatus)

const connectionString = (record: ResourceRecord, password: Redacted.Redacted) =>
  Effect.map(Effect.orDie(decodeStatus(record.status)), (status) => postgresUrl(status, password))

export const layer = HttpApiBuilder.group(
  Api,
  "database",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    yield* ReconcileNow
    yield* AppConfig

    const find = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId, environment } = yield* targetEnvironment
      const records = yield* Effect.mapError(
        resources.listKind(orgId, "Database", projectId, environment),
        fromStore
      )
      // What is being deleted gives way to what takes its place.
      return records.find((record) => record.deletionRequestedAt === null) ?? records[0]
    })
    const theDatabase = Effect.flatMap(find, (record) =>
      record === undefined ? Effect.fail(notFound("database in this environment")) : Effect.succeed(record)
    )

    const databases = yield* resourceHandlers(Database, {
      view: DatabaseView,
      viewer: () => Effect.succeed(databaseView),
      target: () => theDatabase
    })

    return handlers.handleAll(
      handlersOf(Api.groups.database)({
        get: databases.get,
        provision: databases.createAnd(
          Effect.fnUntraced(function* ({ payload }) {
            const { reservation } = yield* RequestScope
            yield* billing
            if ((yield* find)?.deletionRequestedAt === null) {
              return yield* problem(409, "database_exists", "The environment already has a database")
            }
            return {
              name: defaultDatabaseName,
              spec: { ...payload },
              secrets: { [passwordField]: passwordOf(reservation) }
            }
          }),
          Effect.fnUntraced(function* ({ uid }) {
            const { reservation } = yield* RequestScope
            const { record, shown } = yield* afterCreation(uid, decodeSpec)
            return {
              status: record === undefined ? ("provisioning" as const) : serviceStatus(record),
              connectionString:
                shown === undefined ? null : yield* connectionString(shown, passwordOf(reservation)),
              caCertificateUrl: yield* caCertificateUrl
            }
          })
        ),
        rotatePassword: Effect.fnUntraced(function* () {
          const { record, password } = yield* rotate(yield* theDatabase, decodeSpec)
          return {
            connectionString: yield* connectionString(record, password),
            caCertificateUrl: yield* caCertificateUrl
          }
        }),
        delete: databases.delete()
      })
    )
  })
)
