/**
 * What the store knows of the log of one history, without reading a row for each segment into this process: a busy
 * database has hundreds of thousands. Names are in the order of timeline and place, so each timeline is one range of
 * the primary key, and a run without a gap is where the number rises as fast as the row's own.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Fragment } from "effect/sql/Statement"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { LineageRef } from "../Ledger.ts"
import { clockMargin, type Run } from "./log.ts"

/** Segments of a timeline and of later ones, by their places: the sixteen digits after the timeline's. */
export interface WalRange {
  readonly timeline: string
  readonly first: string
  readonly last: string
}

export class WalRanges extends Context.Service<
  WalRanges,
  {
    /** The runs that a recovery would follow, from one place on, in their order; each has one timeline. */
    readonly runs: (ref: LineageRef, from: string) => Effect.Effect<ReadonlyArray<Run>, StoreUnavailable>
    /** The first segment that was written well after a moment; undefined: none was. */
    readonly firstAfter: (
      ref: LineageRef,
      range: WalRange,
      at: Date
    ) => Effect.Effect<string | undefined, StoreUnavailable>
    readonly names: (
      ref: LineageRef,
      range: WalRange
    ) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    readonly histories: (ref: LineageRef) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** A page of segments before a place (undefined: all), in the order of names. */
    readonly page: (
      ref: LineageRef,
      options: { readonly after: string; readonly before: string | undefined; readonly most: number }
    ) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** When the last segment of the log was written. */
    readonly writtenUntil: (ref: LineageRef) => Effect.Effect<Date | undefined, StoreUnavailable>
  }
>()("svc/backups/WalRanges") {
  static readonly layer = Layer.effect(
    WalRanges,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const of = ({ orgId, lineage }: LineageRef, more: Fragment = sql`true`) =>
        sql`o.org_id = ${orgId}::uuid and o.lineage = ${lineage}::uuid and ${more}`
      /** Of a segment: `wal/`, eight digits of the timeline and sixteen of the place. */
      const isSegment = sql.literal("length(o.name) = 28")
      const isLog = sql.literal("o.name >= 'wal/' and o.name < 'wal0'")
      /** From timeline to timeline, one step of the index for each. */
      const timelines = (ref: LineageRef, from: string) => sql`
        recursive step(id) as (
          select substr(min(o.name), 5, 8) from backup_object o where ${of(ref, isLog)}
          union all
          select (select substr(min(o.name), 5, 8) from backup_object o
            where ${of(ref, sql`o.name > 'wal/' || s.id || 'Z' and o.name < 'wal0'`)})
          from step s where s.id is not null
        ), timeline as materialized (
          select s.id, (select substr(min(o.name), 13) from backup_object o
            where ${of(ref, sql`o.name >= 'wal/' || s.id || ${from}::text and o.name < 'wal/' || s.id || 'Z' and ${isSegment}`)})
            as first
          from step s where s.id is not null
        )`
      const within = (
        ref: LineageRef,
        { timeline, first, last }: WalRange,
        columns: Fragment,
        rest: Fragment
      ) =>
        sql`
          with ${timelines(ref, first)}
          select f.* from timeline t cross join lateral (
            select ${columns} from backup_object o
            where ${of(ref, sql`o.name >= 'wal/' || t.id || ${first}::text`)}
              and o.name <= 'wal/' || t.id || ${last}::text and ${isSegment} ${rest}
          ) f
          where t.id >= ${timeline}::text and t.first is not null`

      return WalRanges.of({
        runs: Effect.fn("WalRanges.runs")(function* (ref, from) {
          return yield* repeatable(sql<Run>`
            with ${timelines(ref, from)}, followed as (
              -- A recovery goes over to a later timeline where that begins.
              select id, first, min(first) over (order by id rows between 1 following and unbounded following) as until
              from timeline where first is not null
            )
            select substr(i.first, 5) as first, substr(i.last, 5) as last,
              -- One step of the key for each run: a join might be begun from the other end.
              (select o.finished_at from backup_object o where ${of(ref)} and o.name = i.last) as "finishedAt",
              -- Index: backup_object_flushed.
              (select max(o.flushed_at) from backup_object o where ${of(ref)} and o.flushed_at is not null
                and o.name between i.first and i.last) as "flushedAt"
            from followed t cross join lateral (
              select min(s.name) as first, max(s.name) as last from (
                select o.name, ('x' || substr(o.name, 13, 8))::bit(32)::bigint * 1024
                  + ('x' || substr(o.name, 21, 8))::bit(32)::bigint - row_number() over (order by o.name) as run
                from backup_object o
                where ${of(ref, sql`o.name >= 'wal/' || t.id || t.first and o.name < 'wal/' || t.id || coalesce(t.until, 'Z')`)}
                  and ${isSegment}
              ) s group by s.run
            ) i
            order by substr(i.first, 13)`)
        }),
        firstAfter: Effect.fn("WalRanges.firstAfter")(function* (ref, range, at) {
          const [row] = yield* repeatable(sql<{ readonly place: string | null }>`
            select min(substr(found.name, 13)) as place from (${within(
              ref,
              range,
              sql`o.name`,
              sql`and o.finished_at > ${new Date(at.getTime() + clockMargin)}::timestamptz order by o.name limit 1`
            )}) found`)
          return row?.place ?? undefined
        }),
        names: Effect.fn("WalRanges.names")(function* (ref, range) {
          const rows = yield* repeatable(
            sql<{ readonly name: string }>`
              select substr(found.name, 5) as name from (${within(ref, range, sql`o.name`, sql``)}) found
              order by substr(found.name, 13), found.name`
          )
          return rows.map(({ name }) => name)
        }),
        histories: Effect.fn("WalRanges.histories")(function* (ref) {
          const rows = yield* repeatable(sql<{ readonly name: string }>`
            with ${timelines(ref, "")}
            select t.id || '.history' as name from timeline t
            where (select o.name from backup_object o where ${of(ref)} and o.name = 'wal/' || t.id || '.history')
              is not null
            order by t.id`)
          return rows.map(({ name }) => name)
        }),
        page: Effect.fn("WalRanges.page")(function* (ref, { after, before, most }) {
          const rows = yield* repeatable(sql<{ readonly name: string }>`
            select substr(o.name, 5) as name from backup_object o
            where ${of(ref, sql`o.name > 'wal/' || ${after}::text and o.name < 'wal0' and ${isSegment}`)}
              and (${before ?? null}::text is null or substr(o.name, 13) < ${before ?? null}::text)
            order by o.name limit ${most}::int`)
          return rows.map(({ name }) => name)
        }),
        writtenUntil: Effect.fn("WalRanges.writtenUntil")(function* (ref) {
          const [row] = yield* repeatable(sql<{ readonly at: Date | null }>`
            with ${timelines(ref, "")}
            select l.finished_at as at from timeline t cross join lateral (
              select o.name, o.finished_at from backup_object o
              where ${of(ref, sql`o.name >= 'wal/' || t.id || t.first and o.name < 'wal/' || t.id || 'Z'`)}
                and ${isSegment}
              order by o.name desc limit 1
            ) l order by substr(l.name, 13) desc limit 1`)
          return row?.at ?? undefined
        })
      })
    })
  )
}
