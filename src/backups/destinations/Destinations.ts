/**
 * The backup destinations of organizations: their configurations, whether they can be used, and the places they are.
 *
 * A configuration never changes: a change makes the next version, and what was put somewhere is read from there by the
 * version that put it there. Only credentials are taken from the newest version when it names the same bucket at the
 * same endpoint: keys that were replaced are usually dead, and old copies must stay readable.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { storableText } from "#src/storable.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql, violatedUnique } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { dueNow } from "#src/store/work-rows.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { type Place, PlaceError, PlaceFault } from "../repository/Place.ts"
import { s3Place } from "../repository/s3-place.ts"
import { checkAccess } from "./check.ts"
import { type DestinationConfig, DestinationConnection } from "./connection.ts"
import { giveUpLeftovers } from "./leftovers.ts"
import { DestinationOptions } from "./options.ts"
import { destinationPlace, openCredentials, sealCredentials } from "./seal.ts"

export interface Tested {
  readonly testedAt: Date
  /** Absent: everything went well. */
  readonly fault: PlaceFault | null
  readonly message: string | null
}

interface Ref {
  readonly orgId: string
  readonly uid: string
}

export interface CurrentPlace {
  readonly place: Place
  readonly version: number
}

export class Destinations extends Context.Service<
  Destinations,
  {
    /** Writes, reads and deletes test objects. */
    readonly check: (config: DestinationConfig) => Effect.Effect<void, PlaceError>
    /** Stores a configuration that passed the check as the next version, which is not in force yet. */
    readonly keep: (ref: Ref, config: DestinationConfig) => Effect.Effect<number, StoreUnavailable>
    /** Takes back a version that did not come in force. */
    readonly drop: (ref: Ref, version: number) => Effect.Effect<void, StoreUnavailable>
    readonly config: (
      ref: Ref,
      version: number
    ) => Effect.Effect<Option.Option<DestinationConfig>, StoreUnavailable>
    /** How the last tests went, by id and version. */
    readonly tests: (
      orgId: string
    ) => Effect.Effect<(uid: string, version: number) => Tested | undefined, StoreUnavailable>
    /** Tests a version and records how it went. None: there is no such version. */
    readonly test: (ref: Ref, version: number) => Effect.Effect<Option.Option<Tested>, StoreUnavailable>
    /** Whether there is a version that no copy of a backup needs. */
    readonly remains: (ref: Ref) => Effect.Effect<boolean, StoreUnavailable>
    /** Removes the versions that no copy of a backup needs. */
    readonly forget: (ref: Ref) => Effect.Effect<void, StoreUnavailable>
    /** The place that is configured now. */
    readonly current: (orgId: string, destinationId: string) => Effect.Effect<CurrentPlace, PlaceError>
    /** The place as it was when something was put there. */
    readonly at: (orgId: string, destinationId: string, version: number) => Effect.Effect<Place, PlaceError>
  }
>()("svc/backups/Destinations") {
  static readonly layer = Layer.effect(
    Destinations,
    Effect.gen(function* () {
      const { api, engine } = yield* Db
      const ring = yield* KeyRing
      const connection = yield* DestinationConnection
      const { leftoversAfterMs } = yield* DestinationOptions

      const check = Effect.fn("Destinations.check")(function* (config: DestinationConfig) {
        const opened = yield* connection.open(config, { attempts: 2, idleMs: 15_000 })
        const limits = { patience: 30 }
        yield* checkAccess(
          s3Place("test", config, opened, limits),
          s3Place("test", config, opened, { ...limits, alwaysInParts: true })
        )
      })

      const read = Effect.fnUntraced(function* ({ orgId, uid }: Ref, version: number) {
        const [row] = yield* repeatable(api<Stored>`
          select version, endpoint, bucket, prefix, region, key_id, sealed from backup_destination_version
          where org_id = ${orgId}::uuid and destination_id = ${uid}::uuid and version = ${version}::int
            and ${inOrg(api, orgId)}`)
        if (row === undefined) return Option.none<DestinationConfig>()
        const place = destinationPlace(orgId, uid, String(version))
        const credentials = yield* Effect.mapError(
          openCredentials(ring, place, { keyId: row.key_id, bytes: row.sealed }),
          (error) => new StoreUnavailable({ message: error.message, cause: error })
        )
        const { endpoint, bucket, prefix, region } = row
        return Option.some<DestinationConfig>({ endpoint, bucket, prefix, region, ...credentials })
      })

      /** Whether it went well or not, the engine looks at once when that is news. */
      const record = ({ orgId, uid }: Ref, version: number, fault: PlaceError | undefined) =>
        repeatable(api<Recorded>`
          with before as materialized (
            select fault from backup_destination_version
            where org_id = ${orgId}::uuid and destination_id = ${uid}::uuid and version = ${version}::int
              and ${inOrg(api, orgId)}
          ), done as (
            update backup_destination_version set tested_at = now(), fault = ${fault?.reason ?? null}::text,
              message = ${fault === undefined ? null : storableText(fault.message)}::text
            where org_id = ${orgId}::uuid and destination_id = ${uid}::uuid and version = ${version}::int
              and ${inOrg(api, orgId)}
            returning tested_at, fault, message
          ), woken as (
            update work w set ${dueNow(api)}
            where w.org_id = ${orgId}::uuid and w.uid = ${uid}::uuid and ${inOrg(api, orgId)}
              and exists (select from before b, done d where b.fault is distinct from d.fault)
            returning w.uid
          )
          select tested_at as "testedAt", fault, message,
            (select count(pg_notify('svc_work', '')) from woken) as woken
          from done`)

      const placeOf = Effect.fnUntraced(function* (id: string, config: DestinationConfig) {
        return s3Place(id, config, yield* connection.open(config))
      })
      const activeVersion = Effect.fnUntraced(function* ({ orgId, uid }: Ref) {
        const [row] = yield* repeatable(engine<{ readonly version: number }>`
          select (spec->>'version')::int as version from resource
          where org_id = ${orgId}::uuid and uid = ${uid}::uuid and kind = 'BackupDestination'
            and deleted_at is null`)
        return row?.version
      })

      return Destinations.of({
        check,
        keep: Effect.fn("Destinations.keep")(
          function* ({ orgId, uid }, config) {
            const [last] = yield* api<{ readonly version: number }>`
              select coalesce(max(version), 0) as version from backup_destination_version
              where org_id = ${orgId}::uuid and destination_id = ${uid}::uuid and ${inOrg(api, orgId)}`
            const version = (last?.version ?? 0) + 1
            const place = destinationPlace(orgId, uid, String(version))
            const { keyId, bytes } = sealCredentials(ring, place, config)
            yield* api`
              insert into backup_destination_version
                (org_id, destination_id, version, endpoint, bucket, prefix, region, key_id, sealed, tested_at)
              select ${orgId}::uuid, ${uid}::uuid, ${version}::int, ${config.endpoint}::text, ${config.bucket}::text,
                ${config.prefix}::text, ${config.region}::text, ${keyId}::text, ${bytes}::bytea, now()
              where ${inOrg(api, orgId)}`
            return version
          },
          // Somebody else took the number.
          Effect.retry({ times: 3, while: (error) => violatedUnique(error) !== undefined }),
          orUnavailable
        ),
        drop: Effect.fn("Destinations.drop")(function* ({ orgId, uid }, version) {
          yield* repeatable(api`
            delete from backup_destination_version v
            where v.org_id = ${orgId}::uuid and v.destination_id = ${uid}::uuid and v.version = ${version}::int
              and ${inOrg(api, orgId)} and not exists (
                select from resource r where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid
                  and r.deleted_at is null and (r.spec->>'version')::int >= ${version}::int)`)
        }),
        config: Effect.fn("Destinations.config")(read),
        tests: Effect.fn("Destinations.tests")(function* (orgId) {
          const rows = yield* repeatable(api<Recorded & { readonly key: string }>`
            select destination_id || ' ' || version as key, tested_at as "testedAt", fault, message
            from backup_destination_version where org_id = ${orgId}::uuid and ${inOrg(api, orgId)}`)
          const known = new Map(rows.map((row) => [row.key, tested(row)] as const))
          return (uid: string, version: number) => known.get(`${uid} ${version}`)
        }),
        test: Effect.fn("Destinations.test")(function* (ref, version) {
          const config = yield* read(ref, version)
          if (Option.isNone(config)) return Option.none()
          const fault = yield* Effect.match(check(config.value), {
            onSuccess: () => undefined,
            onFailure: (error) => error
          })
          const [row] = yield* record(ref, version, fault)
          if (fault === undefined) {
            yield* connection.open(config.value, { attempts: 1, idleMs: 15_000 }).pipe(
              Effect.flatMap((opened) => giveUpLeftovers(config.value, opened, leftoversAfterMs)),
              Effect.ignore
            )
          }
          return Option.fromUndefinedOr(row === undefined ? undefined : tested(row))
        }),
        remains: Effect.fn("Destinations.remains")(function* (ref) {
          const [row] = yield* repeatable(engine<{ readonly any: boolean }>`
            select exists (select from backup_destination_version v where ${unused(engine, ref)}) as any`)
          return row?.any === true
        }),
        forget: Effect.fn("Destinations.forget")(function* (ref) {
          yield* repeatable(engine`delete from backup_destination_version v where ${unused(engine, ref)}`)
        }),
        current: Effect.fn("Destinations.current")(function* (orgId, destinationId) {
          const ref = { orgId, uid: destinationId }
          const version = yield* Effect.mapError(activeVersion(ref), noStore)
          if (version === undefined) return yield* unknown
          const config = yield* Effect.mapError(read(ref, version), noStore)
          if (Option.isNone(config)) return yield* unknown
          return { place: yield* placeOf(destinationId, config.value), version }
        }),
        at: Effect.fn("Destinations.at")(function* (orgId, destinationId, version) {
          const ref = { orgId, uid: destinationId }
          const found = yield* Effect.mapError(read(ref, version), noStore)
          if (Option.isNone(found)) return yield* unknown
          const config = found.value
          const newest = yield* Effect.mapError(activeVersion(ref), noStore)
          if (newest === undefined || newest === version) return yield* placeOf(destinationId, config)
          const now = yield* Effect.mapError(read(ref, newest), noStore)
          const same = Option.exists(
            now,
            (other) => other.endpoint === config.endpoint && other.bucket === config.bucket
          )
          const { endpoint, bucket, prefix, region } = config
          return yield* placeOf(
            destinationId,
            same && Option.isSome(now) ? { ...now.value, endpoint, bucket, prefix, region } : config
          )
        })
      })
    })
  ).pipe(Layer.provide(DestinationConnection.layer))
}

interface Stored {
  readonly endpoint: string
  readonly bucket: string
  readonly prefix: string
  readonly region: string | null
  readonly key_id: string
  readonly sealed: Uint8Array
}

interface Recorded {
  readonly testedAt: Date | null
  readonly fault: string | null
  readonly message: string | null
}

const isFault = Schema.is(PlaceFault)

const tested = ({ testedAt, fault, message }: Recorded): Tested | undefined =>
  testedAt === null ? undefined : { testedAt, fault: isFault(fault) ? fault : null, message }

/** Index: backup_copy_version. */
const unused = (sql: Sql, { orgId, uid }: Ref) => sql`
  v.org_id = ${orgId}::uuid and v.destination_id = ${uid}::uuid and not exists (
    select from backup_copy c
    where c.org_id = v.org_id and c.destination_id = v.destination_id and c.version = v.version)`

const unknown = new PlaceError({ reason: "not_found", message: "There is no such backup destination" })

const noStore = (cause: StoreUnavailable) =>
  new PlaceError({
    reason: "unreachable",
    message: "The destination's configuration cannot be read now",
    cause
  })
