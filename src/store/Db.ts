/**
 * Connections to the state store, and how a failure of it looks to the rest of the program.
 *
 * There are two pools because there are two kinds of reader. Requests run as `svc_api`: row-level security shows
 * them one organization. The engine and the housekeeping run as `svc_engine`, which sees all of them.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import * as PgConnection from "@effect/sql-pg/PgConnection"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as SqlError from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { makeNotifications, type Notifications } from "./listening.ts"

export type Sql = PgClient.PgClient

export interface DbOptions {
  readonly url: Redacted.Redacted
  /** Off: requests run as `svc_engine` as well, and only the queries themselves keep tenants apart. */
  readonly rowSecurity?: boolean
  readonly apiConnections?: number
  readonly engineConnections?: number
}

export class Db extends Context.Service<
  Db,
  {
    /** For requests: under row-level security. Statements from many fibers share its connections. */
    readonly api: Sql
    /** For the engine and for housekeeping: sees every organization. */
    readonly engine: Sql
    /** What is announced on a channel: `listening.ts`. */
    readonly notifications: Notifications
  }
>()("svc/store/Db") {
  static readonly layer = (options: DbOptions) =>
    Layer.effect(Db, make(options)).pipe(Layer.provide(Reactivity.layer))
}

/** Of the connection that listens, as the server's list of its connections has it. */
export const listenerName = "svc-listen"

const make = Effect.fnUntraced(function* (options: DbOptions) {
  const settings = (role: string) => ({
    url: options.url,
    connectTimeout: "5 seconds" as const,
    startupParameters: {
      role,
      statement_timeout: "30s",
      lock_timeout: "10s",
      idle_in_transaction_session_timeout: "60s",
      timezone: "UTC",
      // Statements here are short, and compiling one takes longer than it runs.
      jit: "off",
      // Hot rows are in memory: the default, made for spinning disks, makes the planner read whole tables instead.
      random_page_cost: "1.1"
    }
  })
  const open = (
    role: string,
    pool: { readonly maxConnections: number; readonly multiplex: boolean }
  ): Effect.Effect<Sql, SqlError.SqlError, Scope.Scope | Reactivity.Reactivity> =>
    PgClient.make({
      ...settings(role),
      applicationName: "svc",
      minConnections: 1,
      idleTimeout: "1 minute",
      ...pool
    })
  return Db.of({
    api: yield* open(options.rowSecurity === false ? "svc_engine" : "svc_api", {
      maxConnections: options.apiConnections ?? 8,
      multiplex: true
    }),
    engine: yield* open("svc_engine", { maxConnections: options.engineConnections ?? 12, multiplex: false }),
    notifications: yield* makeNotifications(
      PgConnection.make({
        ...settings("svc_engine"),
        applicationName: listenerName,
        // It says nothing by itself: without this, nobody would notice that the other end is gone.
        keepAlive: "30 seconds"
      })
    )
  })
})

/**
 * Names the organization for row-level security, inside the statement that needs it: `where ${inOrg(sql, orgId)}`.
 *
 * The uncorrelated subselect is planned as a one-time filter above every scan of its query level, so the setting
 * is made before the first row is looked at, and being local it ends with the statement. Were it ever evaluated
 * later, the policies would hide every row: it fails closed. Each query level (each CTE) that touches a table
 * needs its own.
 */
export const inOrg = (sql: Sql, orgId: string): Fragment =>
  sql`(select set_config('svc.org_id', ${orgId}, true)) is not null`

const codeOf = (error: SqlError.SqlError): string | undefined => {
  const cause = error.reason.cause
  const code = typeof cause === "object" && cause !== null && "code" in cause ? cause.code : undefined
  return typeof code === "string" ? code : undefined
}

/** Server shutdown, crash and "too many connections" come back as unknown errors: they are worth another try. */
export const isTransient = (error: SqlError.SqlError): boolean =>
  error.isRetryable || /^(57P0|53300|08)/.test(codeOf(error) ?? "")

/**
 * The server does not take this data: it is malformed, breaks a rule, or is too much. Another try with the same data is in
 * vain. (PostgreSQL documentation, "PostgreSQL Error Codes": classes 21, 22, 23 and 54.)
 */
export const isRefused = (error: SqlError.SqlError): boolean => /^(2[123]|54)/.test(codeOf(error) ?? "")

/** Of a statement that was not answered as it should: `isRefused`. */
export const wasRefused = ({ cause }: StoreUnavailable): boolean =>
  SqlError.isSqlError(cause) && isRefused(cause)

/** The driver's own message says only that a query failed; what the server said is in the cause. */
export const saidBy = (error: SqlError.SqlError): string => {
  const { cause } = error.reason
  return cause instanceof Error ? cause.message : error.message
}

/** The server is there and will take connections. */
export const isStarting = (error: SqlError.SqlError): boolean => codeOf(error) === "57P03"

const lost = (error: SqlError.SqlError): StoreUnavailable => {
  return new StoreUnavailable({
    message: `The state store did not answer as it should: ${saidBy(error)}`,
    cause: error
  })
}

/** A connection that is lost inside a transaction surfaces as a defect: give it back as the error it is. */
const asError = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | SqlError.SqlError, R> =>
  Effect.catchDefect(self, (defect) =>
    SqlError.isSqlError(defect) ? Effect.fail(defect) : Effect.die(defect)
  )

const backoff = Schedule.exponential("20 millis").pipe(Schedule.jittered)

/** Turns every failure of a statement into `StoreUnavailable`. Unique violations are mapped before, where they mean something. */
export const orUnavailable = <A, E, R>(
  self: Effect.Effect<A, E | SqlError.SqlError, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | StoreUnavailable, R> =>
  Effect.catchIf(asError(self), SqlError.isSqlError, (error) => Effect.fail(lost(error))) as Effect.Effect<
    A,
    Exclude<E, SqlError.SqlError> | StoreUnavailable,
    R
  >

/** Like {@link orUnavailable}, and tries again a few times when trying again may help: for what may be repeated. */
export const repeatable = <A, E, R>(
  self: Effect.Effect<A, E | SqlError.SqlError, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | StoreUnavailable, R> => {
  const attempt = asError(self)
  const deservesAnother = (error: E | SqlError.SqlError) => SqlError.isSqlError(error) && isTransient(error)
  return orUnavailable(
    Effect.catchIf(attempt, deservesAnother, (error) => {
      // Nothing is prepared for further tries before there is a failure. The one there was counts as the first.
      let failed = false
      const next = Effect.suspend(() => {
        if (failed) return attempt
        failed = true
        return Effect.fail(error)
      })
      return Effect.retry(next, { times: 4, schedule: backoff, while: deservesAnother })
    })
  )
}

/** Runs `self` in a transaction of `sql`. Not repeated by itself: the caller knows whether it may be. */
export const transaction = <A, E, R>(
  sql: Sql,
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, E | SqlError.SqlError, R> => asError(sql.withTransaction(self))

/** Name of the violated constraint, if that is what the error is. */
export const violatedUnique = (error: SqlError.SqlError): string | undefined =>
  error.reason._tag === "UniqueViolation" ? error.reason.constraint : undefined

/** What a rule of the store says no to: a code, and a sentence for people. */
export interface Refusal {
  readonly code: string
  readonly message: string
}
const isRaised = Schema.is(
  Schema.Struct({ code: Schema.Literal("SVREF"), constraint: Schema.String, message: Schema.String })
)

/** The refusal that a trigger raised, if that is what the error is. */
export const refusedByRule = (error: SqlError.SqlError): Refusal | undefined => {
  const { cause } = error.reason
  return isRaised(cause) ? { code: cause.constraint, message: cause.message } : undefined
}
