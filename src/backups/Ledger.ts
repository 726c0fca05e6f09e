/**
 * What is in the repositories, as the store knows it: histories with their keys, objects, and their copies. An object
 * that has no row is debris; one that has a row is whole.
 */
import { randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Fragment } from "effect/sql/Statement"
import { storableText } from "#src/storable.ts"
import { Db, inOrg, orUnavailable, repeatable, transaction } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { dueNow } from "#src/store/work-rows.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { lineagePlace } from "./repository/lineage-place.ts"

export interface LineageRef {
  readonly orgId: string
  readonly lineage: string
}

export interface NewObject {
  readonly name: string
  readonly key: string
  readonly backupId: string | null
  readonly plainBytes: number
  readonly storedBytes: number
  readonly plainSha256: string
  readonly storedSha256: string
  readonly finishedAt: Date | null
}

/** An object and where it can be read, besides here. */
export interface StoredObject extends NewObject {
  readonly copies: ReadonlyArray<{
    readonly destinationId: string
    readonly version: number
    readonly key: string
  }>
}

/** At a base backup, by whoever holds this lease; without one, at a backup that failed for good. */
export interface Attempt {
  readonly id: string
  readonly token: string | null
}

export interface Whereabouts {
  readonly backupId: string
  readonly objects: number
  readonly destinations: ReadonlyArray<{
    readonly destinationId: string
    /** The destination's configuration when the last object was put there; null: nothing is there yet. */
    readonly version: number | null
    readonly objects: number
  }>
}

export interface Trouble {
  readonly reason: "ArchivingBehind" | "ArchivingFailing" | "DestinationFailing" | "BackupFailing"
  /** For those whose database it is. */
  readonly message: string
  /** For the log of this machine alone. */
  readonly detail?: string
}

/** An announcement that there is something to do, or that something was done. */
export const channel = "svc_backup"

export class Ledger extends Context.Service<
  Ledger,
  {
    /** Makes the lineage known, with a key of its own, when it is not; a database has the lineage that it had last. */
    readonly ensure: (ref: LineageRef, databaseUid: string) => Effect.Effect<void, StoreUnavailable>
    /** What the objects of each database take in the repository of this machine. */
    readonly storedBytes: (
      orgId: string
    ) => Effect.Effect<
      ReadonlyArray<{ readonly databaseUid: string; readonly bytes: number }>,
      StoreUnavailable
    >
    readonly keyOf: (ref: LineageRef) => Effect.Effect<Option.Option<Uint8Array>, StoreUnavailable>
    /** Takes or keeps the right to ship these lineages; answers those that this token holds. */
    readonly holdShipping: (
      refs: ReadonlyArray<LineageRef>,
      token: bigint,
      seconds: number
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** For a process that stops: somebody else may ship at once. */
    readonly releaseShipping: (token: bigint) => Effect.Effect<void, StoreUnavailable>
    /** Somebody waits for the end of this log: whoever ships looks at once, and at this one first. */
    readonly wantFlush: (ref: LineageRef, seconds: number) => Effect.Effect<void, StoreUnavailable>
    /** The histories that somebody waits for. */
    readonly flushWanted: Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    readonly newToken: Effect.Effect<bigint, StoreUnavailable>
    /** Records objects that are durable here, and which destinations are to get a copy. Objects that are known stay as they are. */
    readonly add: (
      ref: LineageRef,
      objects: ReadonlyArray<NewObject>,
      destinationIds: ReadonlyArray<string>,
      /** Of a base backup: nothing is recorded for an attempt that is over. */
      attempt?: Attempt
    ) => Effect.Effect<{ readonly added: number }, StoreUnavailable>
    /** Those of these names that are in the repository. */
    readonly known: (
      ref: LineageRef,
      names: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    readonly objects: (
      ref: LineageRef,
      which: { readonly names: ReadonlyArray<string> } | { readonly backupId: string }
    ) => Effect.Effect<ReadonlyArray<StoredObject>, StoreUnavailable>
    /** Forgets the objects of a base backup; copies elsewhere are removed by and by. Answers where they are kept here. */
    readonly removeBackup: (
      ref: LineageRef,
      backupId: string
    ) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** What an attempt at a base backup recorded; false: it is over, and others may be at it. */
    readonly removeAttempt: (ref: LineageRef, attempt: Attempt) => Effect.Effect<boolean, StoreUnavailable>
    /** Of base backups: how many objects each has, with those of its log, and how many of them each destination. */
    readonly whereabouts: (
      orgId: string,
      backupIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<Whereabouts>, StoreUnavailable>
    readonly removeObjects: (
      ref: LineageRef,
      names: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** Everything of a history, with its key; copies elsewhere are removed by and by. */
    readonly forget: (ref: LineageRef) => Effect.Effect<void, StoreUnavailable>
    /** Where all objects of a history are kept here. */
    readonly keysOf: (lineage: string) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** Notes up to which moment a segment, with those before it, has everything. */
    readonly flushed: (ref: LineageRef, name: string, at: Date) => Effect.Effect<void, StoreUnavailable>
    /** Says what is wrong, or that nothing is. Whoever shows the database looks at it again when that changed. */
    readonly setTrouble: (
      ref: LineageRef,
      trouble: Trouble | undefined
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** Histories of which something is wrong, with what. */
    readonly troubled: Effect.Effect<ReadonlyMap<string, Trouble["reason"]>, StoreUnavailable>
    readonly trouble: (ref: LineageRef) => Effect.Effect<Option.Option<Trouble>, StoreUnavailable>
  }
>()("svc/backups/Ledger") {
  static readonly layer = Layer.effect(
    Ledger,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const ring = yield* KeyRing
      const of = ({ orgId, lineage }: LineageRef) =>
        sql`org_id = ${orgId}::uuid and lineage = ${lineage}::uuid`

      /** Held until the end of the statement or transaction: nobody else can begin before it. */
      const ofAttempt = (orgId: string, { id, token }: Attempt) => sql`
        select id from backup_job j where j.org_id = ${orgId}::uuid and j.id = ${id}::uuid
          and case when ${token}::bigint is null then j.status = 'failed'
            else j.lease_token = ${token}::bigint and j.finished_at is null end
        for share`

      /** Answers where the objects were kept here; copies elsewhere are removed by and by. */
      const removing = (ref: LineageRef, condition: Fragment) => sql<{ readonly key: string }>`
        with gone as (
          delete from backup_object where ${of(ref)} and ${condition} returning name, key
        ), elsewhere as (
          update backup_copy c set removing = true, tries = 0, due_at = now()
          from gone g where c.org_id = ${ref.orgId}::uuid and c.lineage = ${ref.lineage}::uuid and c.name = g.name
        )
        select key from gone`
      const removeWhere = (ref: LineageRef, condition: Fragment) =>
        Effect.map(repeatable(removing(ref, condition)), (rows) => rows.map(({ key }) => key))

      return Ledger.of({
        // Index: the primary keys.
        storedBytes: (orgId) =>
          repeatable(sql<{ readonly databaseUid: string; readonly bytes: number }>`
            select l.database_uid as "databaseUid", sum(o.stored_bytes)::float8 as bytes
            from backup_lineage l join backup_object o on o.org_id = l.org_id and o.lineage = l.lineage
            where l.org_id = ${orgId}::uuid group by l.database_uid`),
        ensure: Effect.fn("Ledger.ensure")(function* ({ orgId, lineage }, databaseUid) {
          const found = yield* repeatable(sql<{ readonly database_uid: string }>`
            select database_uid from backup_lineage where ${of({ orgId, lineage })}`)
          if (found[0]?.database_uid === databaseUid) return
          const key = randomBytes(32).toString("base64")
          const { keyId, bytes } = ring.seal(lineagePlace(orgId, lineage), Redacted.make(key))
          yield* repeatable(sql`
            insert into backup_lineage (org_id, lineage, database_uid, key_id, sealed)
            values (${orgId}::uuid, ${lineage}::uuid, ${databaseUid}::uuid, ${keyId}, ${bytes})
            on conflict (org_id, lineage) do update set database_uid = excluded.database_uid`)
        }),
        keyOf: Effect.fn("Ledger.keyOf")(function* ({ orgId, lineage }) {
          const [row] = yield* repeatable(sql<{ readonly key_id: string; readonly sealed: Uint8Array }>`
            select key_id, sealed from backup_lineage where ${of({ orgId, lineage })}`)
          if (row === undefined) return Option.none()
          const opened = yield* Effect.mapError(
            ring.open(lineagePlace(orgId, lineage), { keyId: row.key_id, bytes: row.sealed }),
            (error) => new StoreUnavailable({ message: error.message, cause: error })
          )
          return Option.some(Buffer.from(Redacted.value(opened), "base64"))
        }),
        releaseShipping: (token) =>
          Effect.asVoid(
            repeatable(sql`
              update backup_lineage set shipper = null, shipper_until = null where shipper = ${token}::bigint`)
          ),
        wantFlush: (ref, seconds) =>
          Effect.asVoid(
            repeatable(sql`
              with wanted as (
                update backup_lineage set flush_wanted_until = now() + ${seconds}::float8 * interval '1 second'
                where ${of(ref)}
              )
              select pg_notify(${channel}, '')`)
          ),
        flushWanted: Effect.map(
          repeatable(sql<{ readonly lineage: string }>`
            select lineage from backup_lineage where flush_wanted_until > now()`),
          (rows) => new Set(rows.map(({ lineage }) => lineage))
        ),
        newToken: Effect.flatMap(
          repeatable(sql<{ readonly token: bigint }>`select nextval('backup_token') as token`),
          ([row]) =>
            row === undefined
              ? Effect.fail(new StoreUnavailable({ message: "The store gave no number" }))
              : Effect.succeed(BigInt(row.token))
        ),
        holdShipping: Effect.fn("Ledger.holdShipping")(function* (refs, token, seconds) {
          if (refs.length === 0) return new Set()
          const rows = yield* repeatable(sql<{ readonly lineage: string }>`
            update backup_lineage l set shipper = ${token}::bigint,
              shipper_until = now() + ${seconds}::int * interval '1 second'
            from jsonb_to_recordset(${sql.json(refs)}::jsonb) as r("orgId" uuid, lineage uuid)
            where l.org_id = r."orgId" and l.lineage = r.lineage
              and (l.shipper = ${token}::bigint or l.shipper_until is null or l.shipper_until < now())
            returning l.lineage`)
          return new Set(rows.map(({ lineage }) => lineage))
        }),
        add: Effect.fn("Ledger.add")(function* ({ orgId, lineage }, objects, destinationIds, attempt) {
          if (objects.length === 0) return { added: 0 }
          const going = attempt === undefined ? sql`select` : ofAttempt(orgId, attempt)
          const rows = yield* repeatable(sql<{ readonly added: number }>`
            with going as materialized (${going}), added as (
              insert into backup_object (org_id, lineage, name, key, backup_id, plain_bytes, stored_bytes, plain_sha256,
                stored_sha256, finished_at)
              select ${orgId}::uuid, ${lineage}::uuid, o.name, o.key, o."backupId", o."plainBytes", o."storedBytes",
                o."plainSha256", o."storedSha256", o."finishedAt"
              from jsonb_to_recordset(${sql.json(objects)}::jsonb) as o(name text, key text, "backupId" uuid,
                "plainBytes" bigint, "storedBytes" bigint, "plainSha256" text, "storedSha256" text,
                "finishedAt" timestamptz)
              where exists (select from going)
              on conflict do nothing
              returning name, key
            ), copies as (
              insert into backup_copy (org_id, lineage, name, key, destination_id, due_at)
              select ${orgId}::uuid, ${lineage}::uuid, a.name, a.key, d.id::uuid, now()
              from added a, jsonb_array_elements_text(${sql.json(destinationIds)}::jsonb) as d(id)
              on conflict do nothing
            )
            select count(*)::int as added from added`)
          return { added: rows[0]?.added ?? 0 }
        }),
        known: Effect.fn("Ledger.known")(function* (ref, names) {
          const rows = yield* repeatable(sql<{ readonly name: string }>`
            select name from backup_object where ${of(ref)}
              and name in (select jsonb_array_elements_text(${sql.json(names)}::jsonb))`)
          return new Set(rows.map(({ name }) => name))
        }),
        objects: Effect.fn("Ledger.objects")(function* (ref, which) {
          const condition =
            "names" in which
              ? sql`o.name in (select jsonb_array_elements_text(${sql.json(which.names)}::jsonb))`
              : sql`o.backup_id = ${which.backupId}::uuid`
          return yield* repeatable(sql<StoredObject>`
            select o.name, o.key, o.backup_id as "backupId", o.plain_bytes::float8 as "plainBytes",
              o.stored_bytes::float8 as "storedBytes", o.plain_sha256 as "plainSha256",
              o.stored_sha256 as "storedSha256", o.finished_at as "finishedAt",
              coalesce((select jsonb_agg(jsonb_build_object('destinationId', c.destination_id, 'version', c.version,
                  'key', c.key) order by c.destination_id)
                from backup_copy c where c.org_id = o.org_id and c.lineage = o.lineage and c.name = o.name
                  and c.stored_at is not null and not c.removing), '[]') as copies
            from backup_object o where o.org_id = ${ref.orgId}::uuid and o.lineage = ${ref.lineage}::uuid
              and ${condition}
            order by o.name`)
        }),
        removeAttempt: Effect.fn("Ledger.removeAttempt")(function* (ref, attempt) {
          return yield* orUnavailable(
            transaction(
              sql,
              Effect.gen(function* () {
                const going = yield* sql`select id from (${ofAttempt(ref.orgId, attempt)}) j`
                if (going.length === 0) return false
                // Once: after a fault nothing more can be said in this transaction.
                yield* removing(ref, sql`backup_id = ${attempt.id}::uuid`)
                return true
              })
            )
          )
        }),
        removeBackup: (ref, backupId) => removeWhere(ref, sql`backup_id = ${backupId}::uuid`),
        whereabouts: Effect.fn("Ledger.whereabouts")(function* (orgId, backupIds) {
          if (backupIds.length === 0) return []
          return yield* repeatable(api<Whereabouts>`
            with asked as materialized (
              select jsonb_array_elements_text(${api.json(backupIds)}::jsonb)::uuid as id
            ), parts as (
              select backup_id, lineage, name from backup_object
              where org_id = ${orgId}::uuid and ${inOrg(api, orgId)} and backup_id in (select id from asked)
              union all
              -- Index: the primary key. Without its own range of the log a base backup is worth nothing.
              select j.id, o.lineage, o.name
              from backup_job j join backup_object o on o.org_id = ${orgId}::uuid and o.lineage = j.lineage
                and o.name between 'wal/' || j.start_segment and 'wal/' || j.stop_segment
              where j.org_id = ${orgId}::uuid and ${inOrg(api, orgId)} and j.id in (select id from asked)
            ), copies as (
              select p.backup_id, c.destination_id, max(c.version) filter (where c.stored_at is not null) as version,
                count(*) filter (where c.stored_at is not null)::int as objects
              from parts p join backup_copy c on c.org_id = ${orgId}::uuid and c.lineage = p.lineage
                and c.name = p.name and not c.removing
              where ${inOrg(api, orgId)}
              group by 1, 2
            )
            select p.backup_id as "backupId", count(*)::int as objects,
              coalesce((select jsonb_agg(jsonb_build_object('destinationId', c.destination_id, 'version', c.version,
                'objects', c.objects) order by c.destination_id)
                from copies c where c.backup_id = p.backup_id), '[]') as destinations
            from parts p group by 1`)
        }),
        removeObjects: (ref, names) =>
          removeWhere(ref, sql`name in (select jsonb_array_elements_text(${sql.json(names)}::jsonb))`),
        forget: Effect.fn("Ledger.forget")(function* (ref) {
          yield* orUnavailable(
            transaction(
              sql,
              Effect.gen(function* () {
                yield* sql`delete from backup_lineage where ${of(ref)}`
                yield* sql`delete from backup_job where ${of(ref)}`
                yield* sql`delete from backup_object where ${of(ref)}`
                yield* sql`update backup_copy set removing = true, tries = 0, due_at = now()
                  where ${of(ref)} and not removing`
              })
            )
          )
        }),
        keysOf: Effect.fn("Ledger.keysOf")(function* (lineage) {
          const rows = yield* repeatable(sql<{ readonly key: string }>`
            select key from backup_object where lineage = ${lineage}::uuid`)
          return new Set(rows.map(({ key }) => key))
        }),
        flushed: (ref, name, at) =>
          Effect.asVoid(
            repeatable(sql`
              update backup_object set flushed_at = greatest(flushed_at, ${at}::timestamptz)
              where ${of(ref)} and name = ${name}`)
          ),
        setTrouble: Effect.fn("Ledger.setTrouble")(function* (ref, trouble) {
          const [reason, message] =
            trouble === undefined ? [null, null] : [trouble.reason, storableText(trouble.message)]
          return yield* orUnavailable(
            transaction(
              sql,
              Effect.gen(function* () {
                const changed = yield* sql<{ readonly database_uid: string; readonly told: boolean }>`
                  with before as (
                    select trouble, database_uid from backup_lineage where ${of(ref)}
                      and (trouble, trouble_message) is distinct from (${reason}::text, ${message}::text) for update
                  )
                  update backup_lineage l set trouble = ${reason}::text, trouble_message = ${message}::text,
                    trouble_since = case when ${reason}::text is null then null
                      when l.trouble = ${reason}::text then l.trouble_since else now() end
                  from before b where ${sql`l.org_id = ${ref.orgId}::uuid and l.lineage = ${ref.lineage}::uuid`}
                  returning l.database_uid, b.trouble is distinct from ${reason}::text as told`
                const [row] = changed
                if (row === undefined) return false
                yield* sql`
                  with touched as (
                    update work w set ${dueNow(sql)}
                    where w.org_id = ${ref.orgId}::uuid and w.uid = ${row.database_uid}::uuid returning w.uid
                  )
                  select pg_notify('svc_work', '') from touched`
                if (!row.told) return true
                yield* sql`
                  insert into resource_event (org_id, uid, type, reason, message)
                  select ${ref.orgId}::uuid, ${row.database_uid}::uuid,
                    case when ${reason}::text is null then 'Normal' else 'Warning' end,
                    coalesce(${reason}::text, 'ArchivingWorks'),
                    coalesce(${message}::text, 'Backups and archiving work again')
                  where exists (select from resource r where r.org_id = ${ref.orgId}::uuid
                    and r.uid = ${row.database_uid}::uuid and r.deleted_at is null)`
                return true
              })
            )
          )
        }),
        troubled: Effect.map(
          repeatable(sql<{ readonly lineage: string; readonly reason: Trouble["reason"] }>`
            select lineage, trouble as reason from backup_lineage where trouble is not null`),
          (rows) => new Map(rows.map(({ lineage, reason }) => [lineage, reason]))
        ),
        trouble: Effect.fn("Ledger.trouble")(function* (ref) {
          const [row] = yield* repeatable(sql<{
            readonly reason: Trouble["reason"] | null
            readonly message: string
          }>`
            select trouble as reason, trouble_message as message from backup_lineage where ${of(ref)}`)
          return row === undefined || row.reason === null
            ? Option.none()
            : Option.some({ reason: row.reason, message: row.message })
        })
      })
    })
  )
}
