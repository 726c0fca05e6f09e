/**
 * Asking and telling a managed Postgres server, over its Unix socket as the control user. Every call is one
 * statement on a connection of its own that is always closed: the loss of the server may cost the call and nothing
 * more.
 *
 * The control user is a superuser, so it never enters the application's database, where the tenant may define
 * functions and operators, and finds names in `pg_catalog` alone. It works in the maintenance database, where nobody
 * else is let in.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import postgres from "postgres"
import { codeOf } from "../error-code.ts"
import { appDatabase, appUser, controlDatabase, controlUser } from "./settings.ts"

export class PostgresControlError extends Schema.TaggedError<PostgresControlError>()("PostgresControlError", {
  message: Schema.String,
  /** SQLSTATE or the code of a system call. */
  code: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export interface PostgresEndpoint {
  readonly socketDir: string
  readonly port: number
}

/** What a running server tells of itself. */
export const PostgresLive = Schema.Struct({
  version: Schema.String,
  recovering: Schema.Boolean,
  config: Schema.NullOr(Schema.String),
  restartPending: Schema.Boolean,
  sharedBuffers: Schema.Number,
  workMem: Schema.Number,
  maxConnections: Schema.Number,
  verifier: Schema.NullOr(Schema.String),
  powerless: Schema.Boolean,
  database: Schema.Boolean,
  closed: Schema.Boolean,
  extension: Schema.Boolean,
  archiveFailing: Schema.Boolean,
  archiveError: Schema.NullOr(Schema.String)
})
export type PostgresLive = typeof PostgresLive.Type

const decodeLive = Schema.decodeUnknownEffect(PostgresLive)
const timeoutSeconds = 10

const statement = (
  endpoint: PostgresEndpoint,
  run: (sql: postgres.Sql) => Promise<unknown>
): Effect.Effect<unknown, PostgresControlError> =>
  Effect.callback<unknown, PostgresControlError>((resume) => {
    const sql = postgres({
      host: endpoint.socketDir,
      port: endpoint.port,
      database: controlDatabase,
      username: controlUser,
      max: 1,
      connect_timeout: timeoutSeconds,
      prepare: false,
      fetch_types: false,
      onnotice: () => {},
      connection: {
        application_name: "svc",
        statement_timeout: timeoutSeconds * 1000,
        // Named last, the schema of temporary objects is not searched first.
        search_path: "pg_catalog, pg_temp"
      }
    })
    const ended = run(sql)
      .then(
        (value) => Effect.succeed(value),
        (cause: unknown) => Effect.fail(toError(cause))
      )
      .then((effect) =>
        sql.end({ timeout: 1 }).then(
          () => resume(effect),
          () => resume(effect)
        )
      )
    return Effect.promise(() => Promise.all([sql.end({ timeout: 0 }), ended]))
  }).pipe(
    Effect.timeoutOrElse({
      duration: `${2 * timeoutSeconds} seconds`,
      orElse: () =>
        Effect.fail(
          new PostgresControlError({ message: "The database server did not answer in time", code: "timeout" })
        )
    })
  )

const toError = (cause: unknown): PostgresControlError => {
  const code = codeOf(cause) ?? "unknown"
  const said = cause instanceof Error ? cause.message : String(cause)
  return new PostgresControlError({ message: `The database server refused: ${said}`, code, cause })
}

const question = (sql: postgres.Sql) => sql`
  select
    'PostgreSQL ' || current_setting('server_version') as version,
    pg_is_in_recovery() as recovering,
    current_setting('svc.config', true) as config,
    (select coalesce(bool_or(pending_restart), false) from pg_settings) as "restartPending",
    (select setting::float8 * 8192 from pg_settings where name = 'shared_buffers') as "sharedBuffers",
    (select setting::float8 * 1024 from pg_settings where name = 'work_mem') as "workMem",
    (select setting::float8 from pg_settings where name = 'max_connections') as "maxConnections",
    (select rolpassword from pg_authid where rolname = ${appUser}) as verifier,
    coalesce((select rolcanlogin and rolinherit and not (rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)
        and not exists (select from pg_auth_members m where m.member = a.oid)
      from pg_authid a where rolname = ${appUser}), false) as powerless,
    coalesce((select pg_get_userbyid(datdba) = ${appUser} from pg_database where datname = ${appDatabase}), false) as database,
    -- Nobody but its owner connects to the database, and the owner to no other.
    not exists (select from pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) acl
      where acl.grantee = 0 and acl.privilege_type = 'CONNECT' and d.datallowconn) as closed,
    exists (select from pg_extension where extname = 'pg_stat_statements') as extension,
    coalesce((select last_failed_time > coalesce(last_archived_time, '-infinity') from pg_stat_archiver), false) as "archiveFailing",
    (select last_failed_wal from pg_stat_archiver) as "archiveError"`

/** None: the socket is not there or nobody listens on it. */
export const askServer = (
  endpoint: PostgresEndpoint
): Effect.Effect<Option.Option<PostgresLive>, PostgresControlError> =>
  statement(endpoint, async (sql) => (await question(sql))[0]).pipe(
    Effect.flatMap((row) => Effect.map(Effect.orDie(decodeLive(row)), Option.some)),
    Effect.catchIf(
      (error) => error.code === "ENOENT" || error.code === "ECONNREFUSED",
      () => Effect.succeed(Option.none<PostgresLive>())
    )
  )

/** Whether an error says that the server is there and not open yet (57P03) or just closing (57P01, 57P02). */
export const isStarting = (error: PostgresControlError): boolean => /^57P0/.test(error.code)

/**
 * Whether an error says that the server is there and did not answer in time: no connection came about, or none is taken
 * any more, or the statement was not done (57014).
 */
export const isSilent = (error: PostgresControlError): boolean =>
  ["CONNECT_TIMEOUT", "EAGAIN", "57014", "timeout"].includes(error.code)

/** Whether an error says that a connection was taken and ended: by a server that is ending itself, mostly. */
export const isCut = (error: PostgresControlError): boolean =>
  ["ECONNRESET", "EPIPE", "CONNECTION_CLOSED", "CONNECTION_ENDED"].includes(error.code)

export const tellServer = (
  endpoint: PostgresEndpoint,
  text: string
): Effect.Effect<void, PostgresControlError> => Effect.asVoid(statement(endpoint, (sql) => sql.unsafe(text)))

/** The rows of one question. */
export const askRows = (
  endpoint: PostgresEndpoint,
  text: string
): Effect.Effect<unknown, PostgresControlError> =>
  Effect.map(
    statement(endpoint, (sql) => sql.unsafe(text)),
    (rows) => (Array.isArray(rows) ? [...rows] : rows)
  )
