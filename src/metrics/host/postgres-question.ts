/**
 * What a managed Postgres server tells of its work, in one question (PostgreSQL documentation, "The Cumulative Statistics
 * System" and "pg_stat_statements"). Statements are those of the application's database that an application sent itself;
 * utility commands such as BEGIN are not among them.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { askOnce } from "#src/infra/postgres/ask-once.ts"
import { PostgresControlError, type PostgresEndpoint } from "#src/infra/postgres/PostgresControl.ts"
import { appDatabase, extensionSchema } from "#src/infra/postgres/settings.ts"
import { type Counted, perSecond, riseOf } from "./rates.ts"
import { known } from "./usage.ts"

const PostgresAnswer = Schema.fromJsonString(
  Schema.Struct({
    /** Sessions of the application. */
    connections: Schema.Number,
    /** Of these, sessions that wait for a lock that another one has. */
    waiting: Schema.Number,
    /** Sessions that the application may have. */
    connectionLimit: Schema.Number,
    /** Changes when the counters of statements begin anew, or some of them were dropped to make room. */
    counted: Schema.String,
    statements: Schema.Number,
    /** Processing time of all statements, in milliseconds. */
    statementMs: Schema.Number,
    /** How far the log has come, in bytes. */
    logBytes: Schema.NullOr(Schema.Number),
    /** Null: nothing is archived. */
    archiveFailing: Schema.NullOr(Schema.Boolean),
    /** Null: there are no standbys. */
    lagBytes: Schema.NullOr(Schema.Number),
    /** Null: there are none, or one is not connected. */
    lagSeconds: Schema.NullOr(Schema.Number)
  })
)
export type PostgresAnswer = typeof PostgresAnswer.Type
const decode = Schema.decodeUnknownEffect(PostgresAnswer)

const question = `
  select json_build_object(
    'connections', (select count(*) from pg_stat_activity
      where datname = '${appDatabase}' and backend_type = 'client backend'),
    'waiting', (select count(*) from pg_stat_activity
      where datname = '${appDatabase}' and backend_type = 'client backend' and wait_event_type = 'Lock'),
    'connectionLimit', current_setting('max_connections')::int - current_setting('reserved_connections')::int
      - current_setting('superuser_reserved_connections')::int,
    'counted', i.stats_reset || '/' || i.dealloc,
    'statements', s.calls, 'statementMs', s.ms,
    'logBytes', case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - '0/0',
    'archiveFailing', case when current_setting('archive_mode') <> 'off' then
      (select coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) from pg_stat_archiver) end,
    'lagBytes', f.bytes, 'lagSeconds', f.seconds)
  from ${extensionSchema}.pg_stat_statements_info i,
    -- Without their texts, which are in a file.
    (select coalesce(sum(calls), 0) as calls, coalesce(sum(total_exec_time), 0) as ms
      from ${extensionSchema}.pg_stat_statements(false)
      where toplevel and dbid = (select oid from pg_database where datname = '${appDatabase}')) s,
    (select max(greatest(case when not pg_is_in_recovery() then pg_current_wal_lsn() end
          - coalesce(r.replay_lsn, l.restart_lsn), 0)) as bytes,
        -- One that has replayed all that there is has no lag to tell.
        case when bool_and(r.pid is not null) then coalesce(max(extract(epoch from r.replay_lag)), 0) end as seconds
      from pg_replication_slots l left join pg_stat_replication r on r.pid = l.active_pid
      where starts_with(l.slot_name::text, 'svc_replica_')) f`

const statementTimeoutMs = 2_000

export const askPostgres = (
  endpoint: PostgresEndpoint
): Effect.Effect<PostgresAnswer, PostgresControlError> =>
  Effect.flatMap(askOnce(endpoint, question, statementTimeoutMs), (text) =>
    Effect.mapError(
      decode(text),
      (cause) =>
        new PostgresControlError({
          message: "What a database server tells is not understood",
          code: "unknown",
          cause
        })
    )
  )

export const postgresCounters = (answer: PostgresAnswer): Counted["counters"] => ({
  statements: answer.statements,
  statementMs: answer.statementMs,
  logBytes: answer.logBytes ?? undefined
})

export const postgresValues = (answer: PostgresAnswer, before: Counted | undefined, now: Counted) => {
  const { connections, connectionLimit, waiting, archiveFailing, lagBytes, lagSeconds } = answer
  const [statements, ms] = [riseOf("statements", before, now), riseOf("statementMs", before, now)]
  return known({
    "database.connections": connections,
    "database.connections_limit": connectionLimit,
    "database.pool_saturation": connectionLimit > 0 ? (connections / connectionLimit) * 100 : undefined,
    "database.pool_waiting": waiting,
    "database.queries_per_second": perSecond("statements", before, now),
    "database.query_latency_avg_ms":
      statements === undefined || ms === undefined || statements === 0 ? undefined : ms / statements,
    "database.wal_bytes": perSecond("logBytes", before, now),
    "database.archive_failing": archiveFailing === null ? undefined : Number(archiveFailing),
    "database.replication_lag_bytes": lagBytes ?? undefined,
    "database.replication_lag_seconds": lagSeconds ?? undefined
  })
}
