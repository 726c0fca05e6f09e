/** Handlers of `backupDestinations.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { BackupDestination, BackupDestinationSpec } from "#schemas/backup-destination.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, type Problem, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import { amend } from "#src/api/writing.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ListedRecord, ResourceRecord } from "#src/store/records.ts"
import type { PlaceError, PlaceFault } from "../repository/Place.ts"
import { BackupDestinationView } from "./api.ts"
import type { DestinationConfig } from "./connection.ts"
import { Destinations, type Tested } from "./Destinations.ts"

/** Of one organization. */
const most = 50
const kind = BackupDestination.name
const storedSpec = Schema.decodeUnknownSync(BackupDestinationSpec)

const noDestination = notFound("backup destination")

export const layer = HttpApiBuilder.group(
  Api,
  "backupDestinations",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const destinations = yield* Destinations

    const operations = yield* resourceHandlers(BackupDestination, {
      view: BackupDestinationView,
      viewer: Effect.fnUntraced(function* () {
        const { orgId } = yield* RequestScope
        const tests = yield* Effect.mapError(destinations.tests(orgId), fromStore)
        return (record) => {
          const spec = storedSpec(record.spec)
          return view(record, spec, tests(record.uid, spec.version))
        }
      })
    })
    const nameIsFree = Effect.fnUntraced(function* (orgId: string, name: string) {
      const found = yield* Effect.mapError(resources.find(orgId, kind, null, null, name), fromStore)
      if (Option.exists(found, ({ deletionRequestedAt }) => deletionRequestedAt === null)) {
        return yield* nameTaken(name)
      }
    })
    const checked = (config: DestinationConfig) => Effect.mapError(destinations.check(config), refused)

    return handlers.handleAll(
      handlersOf(Api.groups.backupDestinations)({
        list: operations.list,
        create: operations.create(
          Effect.fnUntraced(function* ({ payload }) {
            // Nobody is asked for access on behalf of somebody who does not pay.
            yield* billing
            const { orgId, reservation } = yield* RequestScope
            const { name, endpoint, bucket, prefix = "", region = null, credentials } = payload
            yield* nameIsFree(orgId, name)
            const others = yield* Effect.mapError(resources.listKind(orgId, kind, null), fromStore)
            if (others.length >= most) {
              return yield* problem(
                409,
                "too_many_destinations",
                `An organization has ${most} backup destinations at most; delete one`
              )
            }
            const config = {
              endpoint: bare(endpoint),
              bucket,
              prefix: inner(prefix),
              region,
              ...sealedAway(credentials)
            }
            yield* checked(config)
            const ref = { orgId, uid: reservation.uid }
            const version = yield* Effect.mapError(destinations.keep(ref, config), fromStore)
            return {
              name,
              spec: specOf(config, version),
              undo: Effect.ignore(destinations.drop(ref, version))
            }
          })
        ),
        get: operations.get,
        update: Effect.fnUntraced(function* ({ payload }) {
          const { name, credentials, ...asked } = payload
          const { orgId } = yield* RequestScope
          const found = yield* targetRecord
          const ref = { orgId, uid: found.uid }
          if (name !== undefined && name !== found.name) yield* nameIsFree(orgId, name)
          const kept: Array<number> = []
          const after = yield* amend(
            found,
            Effect.fnUntraced(function* (record: ResourceRecord) {
              const now = storedSpec(record.spec)
              const before = yield* Effect.mapError(destinations.config(ref, now.version), fromStore)
              if (Option.isNone(before)) return yield* noDestination
              const endpoint = bare(asked.endpoint ?? now.endpoint)
              // A secret key never leaves with a request; a session token goes with each.
              const stranger = new URL(endpoint).origin !== new URL(before.value.endpoint).origin
              if (stranger && credentials === undefined && before.value.sessionToken !== undefined) {
                return yield* invalid([
                  {
                    pointer: "/credentials",
                    message: "must come with another endpoint, which the stored session token is not for"
                  }
                ])
              }
              const config: DestinationConfig = {
                ...before.value,
                endpoint,
                bucket: asked.bucket ?? now.bucket,
                prefix: inner(asked.prefix ?? now.prefix),
                region: asked.region === undefined ? now.region : asked.region,
                ...(credentials === undefined ? {} : sealedAway(credentials))
              }
              const renamed = name === undefined ? {} : { name }
              // Another name alone is no other configuration.
              if (credentials === undefined && Object.keys(asked).length === 0)
                return { spec: now, ...renamed }
              yield* checked(config)
              const version = yield* Effect.mapError(destinations.keep(ref, config), fromStore)
              kept.push(version)
              return { spec: specOf(config, version), ...renamed }
            })
          ).pipe(
            Effect.mapError((failure) =>
              failure.code === "name_taken" && name !== undefined ? nameTaken(name) : failure
            ),
            Effect.onError(() =>
              Effect.forEach(kept, (version) => Effect.ignore(destinations.drop(ref, version)))
            )
          )
          return yield* operations.answered(after)
        }),
        delete: operations.delete(),
        test: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          const { version } = storedSpec(record.spec)
          const tested = yield* Effect.mapError(destinations.test(record, version), fromStore)
          if (Option.isNone(tested)) return yield* noDestination
          const { testedAt, fault, message } = tested.value
          if (fault !== null) return yield* problem(422, codeOf(fault), message ?? "It cannot be used")
          return { ok: true, testedAt: testedAt.toISOString() }
        })
      })
    )
  })
)

const nameTaken = (name: string) =>
  problem(409, "name_taken", `A backup destination "${name}" exists already; choose another name`)

/** What went wrong is the problem's code; the part of the request that is likely to be at fault is pointed at. */
const codeOf = (fault: PlaceFault) => `destination_${fault}`
const pointers: Readonly<Record<PlaceFault, string>> = {
  dns: "/endpoint",
  blocked_address: "/endpoint",
  tls: "/endpoint",
  unreachable: "/endpoint",
  timeout: "/endpoint",
  clock: "/endpoint",
  region: "/region",
  bucket: "/bucket",
  no_space: "/bucket",
  not_found: "/bucket",
  credentials: "/credentials",
  read: "/credentials",
  write: "/credentials",
  delete: "/credentials"
}
const refused = ({ reason, message }: PlaceError): Problem =>
  problem(422, codeOf(reason), message, { errors: [{ pointer: pointers[reason], message }] })

const sealedAway = (credentials: {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken?: string
}) => ({
  accessKeyId: credentials.accessKeyId,
  secretAccessKey: Redacted.make(credentials.secretAccessKey),
  sessionToken: credentials.sessionToken === undefined ? undefined : Redacted.make(credentials.sessionToken)
})

const bare = (endpoint: string) => new URL(endpoint).href.replace(/\/$/, "")
const inner = (prefix: string) => prefix.replaceAll(/^\/|\/$/g, "")

const specOf = ({ endpoint, bucket, prefix, region }: DestinationConfig, version: number) => ({
  endpoint,
  bucket,
  prefix,
  region,
  version
})

const view = (record: ListedRecord, spec: BackupDestinationSpec, tested: Tested | undefined) => {
  const { version, endpoint, bucket, prefix, region } = spec
  const fault = tested?.fault ?? null
  return {
    id: record.uid,
    name: record.name,
    kind: "custom_object_storage" as const,
    endpoint,
    bucket,
    prefix,
    region,
    version,
    status:
      tested === undefined ? ("pending" as const) : fault === null ? ("ready" as const) : ("failed" as const),
    lastTestedAt: tested?.testedAt.toISOString() ?? null,
    fault: fault === null ? null : { code: fault, message: tested?.message ?? "" },
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}
