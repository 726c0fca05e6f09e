/**
 * Requests to environments, as they are kept: the last ones of each environment, at most {@link recentMost} and for a day,
 * and sums by minute for 30 days. They tell of many visitors, so what they say of one is little: no address, no query.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Batch, MinuteSums } from "./tally.ts"

/** Requests of an environment that are kept. */
export const recentMost = 10_000

export interface RequestRecord {
  /** Position in the list: later requests have larger ones. */
  readonly number: string
  /** When it came. */
  readonly at: Date
  readonly method: string
  readonly host: string
  /** Without query. */
  readonly path: string
  /** Null: nobody answered. */
  readonly status: number | null
  readonly durationMs: number
  readonly bytesIn: number
  readonly bytesOut: number
  /** In two letters (HAProxy Configuration Manual, 8.5). */
  readonly termination: string
}

export interface RequestFilter {
  /** First digit of the status; 0: nobody answered. */
  readonly statusClass?: number | undefined
  /** What the path begins with. */
  readonly path?: string | undefined
  /** Came at this time or later. */
  readonly since?: Date | undefined
}

export interface MinuteRecord extends Omit<MinuteSums, "environment" | "minute"> {
  readonly minute: Date
}

/** Of one environment in a minute. */
export interface MinuteTotal {
  readonly orgId: string
  /** The environment. */
  readonly uid: string
  readonly requests: number
  /** Those of them that got a 5xx status or no answer. */
  readonly errors: number
}

/** Edges tell of requests every second; a minute is complete so much after its end. */
const completeAfterSeconds = 5

export class RequestRecords extends Context.Service<
  RequestRecords,
  {
    /**
     * Adds what an edge saw, and removes what is too much. Requests of environments that there are no more are left out. It
     * is no error to add a batch again, but then it counts twice.
     */
    readonly add: (batch: Batch) => Effect.Effect<void, StoreUnavailable>
    /** The last ones first, at most `limit`, before the one with the number `before`. */
    readonly list: (
      orgId: string,
      environmentUid: string,
      filter: RequestFilter,
      limit: number,
      before?: string
    ) => Effect.Effect<ReadonlyArray<RequestRecord>, StoreUnavailable>
    /** Of the minutes from `from` on and before `to`, in their order; minutes without requests are left out. */
    readonly minutes: (
      orgId: string,
      environmentUid: string,
      from: Date,
      to: Date
    ) => Effect.Effect<ReadonlyArray<MinuteRecord>, StoreUnavailable>
    /** Of the last full minute and every environment with an address; none while no edge is at work. */
    readonly lastMinute: Effect.Effect<ReadonlyArray<MinuteTotal>, StoreUnavailable>
  }
>()("svc/edge/RequestRecords") {
  static readonly layer = Layer.effect(
    RequestRecords,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      return RequestRecords.of({
        // Environments come in the order of their uids, so that two edges never wait for each other's rows.
        add: Effect.fn("RequestRecords.add")(function* ({ requests, minutes }) {
          const timed = requests.map((request, ord) => ({ ...request, ord, at: iso(request.at) }))
          const sums = minutes.map((of) => ({ ...of, minute: iso(of.minute) }))
          yield* orUnavailable(sql`
            with input as materialized (
              select i.*, s.org_id from jsonb_to_recordset(${sql.json(timed)}::jsonb)
                as i(environment uuid, ord int, at timestamptz, method text, host text, path text, status smallint,
                  "durationMs" int, "bytesIn" bigint, "bytesOut" bigint, "end" text)
              join edge_site s on s.environment_uid = i.environment
            ), counted as (
              insert into edge_request_counter as c (org_id, environment_uid, last)
              select org_id, environment, count(*) from input group by org_id, environment order by environment
              on conflict (org_id, environment_uid) do update set last = c.last + excluded.last
              returning org_id, environment_uid, last
            ), added as (
              insert into edge_request (org_id, environment_uid, number, at, method, host, path, status, duration_ms,
                bytes_in, bytes_out, termination)
              select i.org_id, i.environment, c.last + 1 - row_number() over (partition by i.environment order by i.ord desc),
                i.at, i.method, i.host, i.path, i.status, i."durationMs", i."bytesIn", i."bytesOut", i."end"
              from input i join counted c on c.org_id = i.org_id and c.environment_uid = i.environment
            ), removed as (
              delete from edge_request r using counted c
              where r.org_id = c.org_id and r.environment_uid = c.environment_uid
                and r.number <= c.last - ${recentMost}::bigint
            )
            insert into edge_request_minute as m (org_id, environment_uid, minute, status_class, requests, bytes_in,
              bytes_out, duration_ms, durations)
            select s.org_id, s.environment_uid, i.minute, i."statusClass", i.requests, i."bytesIn", i."bytesOut",
              i."durationMs", i.durations
            from jsonb_to_recordset(${sql.json(sums)}::jsonb)
              as i(environment uuid, minute timestamptz, "statusClass" smallint, requests bigint, "bytesIn" bigint,
                "bytesOut" bigint, "durationMs" bigint, durations bigint[])
            join edge_site s on s.environment_uid = i.environment
            order by s.environment_uid, i.minute, i."statusClass"
            on conflict (org_id, environment_uid, minute, status_class) do update set
              requests = m.requests + excluded.requests, bytes_in = m.bytes_in + excluded.bytes_in,
              bytes_out = m.bytes_out + excluded.bytes_out, duration_ms = m.duration_ms + excluded.duration_ms,
              durations = (select array_agg(coalesce(was, 0) + coalesce(new, 0) order by bucket)
                from unnest(m.durations, excluded.durations) with ordinality as t(was, new, bucket))`)
        }),
        // Index: the primary key; no environment has more than `recentMost`.
        list: Effect.fn("RequestRecords.list")(function* (orgId, environmentUid, filter, limit, before) {
          const { statusClass = null, path = null, since = null } = filter
          return yield* repeatable(api<RequestRecord>`
            select r.number::text as number, r.at, r.method, r.host, r.path, r.status, r.duration_ms as "durationMs",
              r.bytes_in::float8 as "bytesIn", r.bytes_out::float8 as "bytesOut", r.termination
            from edge_request r
            where org_id = ${orgId}::uuid and environment_uid = ${environmentUid}::uuid and ${inOrg(api, orgId)}
              and (${before ?? null}::bigint is null or number < ${before ?? null}::bigint)
              and (${statusClass}::int is null or coalesce(status / 100, 0) = ${statusClass}::int)
              and (${path}::text is null or starts_with(path, ${path}::text))
              and (${since}::timestamptz is null or at >= ${since}::timestamptz)
            order by r.number desc limit ${limit}::int`)
        }),
        // Index: the primary key.
        minutes: Effect.fn("RequestRecords.minutes")(function* (orgId, environmentUid, from, to) {
          return yield* repeatable(api<MinuteRecord>`
            select minute, status_class as "statusClass", requests::float8 as requests, bytes_in::float8 as "bytesIn",
              bytes_out::float8 as "bytesOut", duration_ms::float8 as "durationMs", durations::float8[] as durations
            from edge_request_minute
            where org_id = ${orgId}::uuid and environment_uid = ${environmentUid}::uuid and ${inOrg(api, orgId)}
              and minute >= ${from}::timestamptz and minute < ${to}::timestamptz
            order by minute, status_class`)
        }),
        // Index: the primary key.
        lastMinute: repeatable(sql<MinuteTotal>`
          select s.org_id as "orgId", s.environment_uid as uid, sums.requests, sums.errors
          from edge_site s cross join lateral (
            select coalesce(sum(m.requests), 0)::float8 as requests,
              coalesce(sum(m.requests) filter (where m.status_class in (0, 5)), 0)::float8 as errors
            from edge_request_minute m
            where m.org_id = s.org_id and m.environment_uid = s.environment_uid and m.minute =
              date_trunc('minute', now() - make_interval(secs => ${completeAfterSeconds}::int)) - interval '1 minute') sums
          where exists (select from edge_node where alive_until > now())`).pipe(
          Effect.withSpan("RequestRecords.lastMinute")
        )
      })
    })
  )
}

const iso = (ms: number): string => new Date(ms).toISOString()
