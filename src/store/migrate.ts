/**
 * Brings the schema of the state store up to date: the numbered files in `migrations/`, each once, in order.
 *
 * One process does it at a time. Each file is a transaction of its own, so a failed or killed start leaves whole files
 * behind, and the next one goes on after them. A file that was applied and changed since stops the start: what the store
 * holds would not be what the program expects.
 *
 * Processes of the former release work meanwhile. Rules for files, so that those neither fail nor wait for long:
 *
 * - Only add: tables, columns with a constant default or none, functions. What the former release uses is removed or
 *   renamed by the release after this one.
 * - Change few tables that are in use in one file: their locks are held until its end. A lock that does not come in time
 *   is given up and tried again, since everybody else would queue behind the one who waits for it.
 * - Rewrite or fill no large table (`alter column type`, `update` of all rows): let a loop of the program do it in batches.
 * - An index on a table that may be large is a file of its own, with the first line `-- concurrently` and one statement,
 *   `create index concurrently`: it runs outside of a transaction. Other statements of that kind must be repeatable.
 * - A constraint comes as `not valid`, and is validated by a later file.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as Schedule from "effect/Schedule"
import type * as SqlError from "effect/sql/SqlError"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { isStarting, isTransient, orUnavailable } from "./Db.ts"

const migrations = new URL("./migrations/", import.meta.url)
/** Any fixed number does; it only has to be the same in every process. */
const lockId = 7_310_577_205

interface File {
  readonly name: string
  readonly script: string
  readonly digest: string
}

const load = (folder: URL): Effect.Effect<ReadonlyArray<File>> =>
  Effect.promise(async () => {
    const names = (await fs.readdir(folder)).filter((name) => /^\d{4}_.+\.sql$/.test(name)).sort()
    return Promise.all(
      names.map(async (name) => {
        const script = await fs.readFile(new URL(name, folder), "utf8")
        return { name, script, digest: createHash("sha256").update(script).digest("hex") }
      })
    )
  })

/**
 * The two roles that the program becomes. They belong to the whole cluster: another database of it may have made
 * them, or make them at this moment. Since Postgres 16 who makes a role may not become it without a grant of its own.
 */
const rolesScript = (privilege: "set" | "member") => `
  do $$
  declare
    role_name text;
  begin
    foreach role_name in array array['svc_api', 'svc_engine'] loop
      for attempt in 1..5 loop
        begin
          if not exists (select from pg_roles where rolname = role_name) then
            execute format('create role %I nologin', role_name);
          end if;
          if not pg_has_role(current_user, role_name, '${privilege}') then
            execute format('grant %I to current_user', role_name);
          end if;
          exit;
        exception
          when insufficient_privilege then
            raise exception using errcode = 'insufficient_privilege', message = format(
              '"%1$s" needs the role %2$s; as a superuser: create role %2$s nologin (if there is none); grant %2$s to "%1$s"',
              current_user, role_name);
          when duplicate_object or unique_violation or internal_error then
            perform pg_sleep(0.05 * attempt);
        end;
      end loop;
    end loop;
  end
  $$`

/** A connection of its own, once the server takes any: one that recovers from a crash may need its time. */
export const connect = (url: Redacted.Redacted) =>
  PgClient.makeClient({ url, applicationName: "svc-migrate", connectTimeout: "5 seconds" }).pipe(
    Effect.retry({ times: 20, schedule: Schedule.spaced("250 millis"), while: isTransient }),
    Effect.retry({ times: 11, while: isStarting })
  )

export interface MigrateOptions {
  /** Where the files are. */
  readonly folder?: URL
  /** How long others queue behind a file that waits for a lock, in milliseconds. */
  readonly lockMs?: number
}

/** Answers the names of the migrations it applied. `url` must be able to create tables and, the first time, roles. */
export const migrate = Effect.fn("migrate")(
  function* (url: Redacted.Redacted, { folder = migrations, lockMs = 5_000 }: MigrateOptions = {}) {
    const files = yield* load(folder)
    const sql = yield* connect(url)
    const [version] = yield* sql<{ readonly number: number }>`
      select current_setting('server_version_num')::int as number`
    if (version === undefined || version.number < 150_000) {
      return yield* new StoreUnavailable({ message: "The state store needs Postgres 15 or newer" })
    }
    yield* becomeFirst(sql)
    yield* sql.unsafe(rolesScript(version.number >= 160_000 ? "set" : "member"))
    yield* sql`
      create table if not exists schema_migration (
        name text primary key, digest text not null, applied_at timestamptz not null default now())`
    const rows = yield* sql<{ readonly name: string; readonly digest: string }>`
      select name, digest from schema_migration`
    const applied = new Map(rows.map((row): [string, string] => [row.name, row.digest]))
    const changed = files.find((file) => {
      const digest = applied.get(file.name) ?? file.digest
      // A file may name a former wording of itself that left the same behind.
      return digest !== file.digest && !file.script.includes(`-- Restates ${digest}\n`)
    })
    if (changed !== undefined) {
      return yield* new StoreUnavailable({
        message: `Migration ${changed.name} was changed after the store applied it; restore the file or use the release that made the store`
      })
    }
    // The wire protocol takes one statement at a time; a function that executes its argument takes a script.
    yield* sql`
      create function pg_temp.run_script(script text) returns void language plpgsql as 'begin execute script; end'`
    const pending = files.filter((file) => !applied.has(file.name))
    for (const file of pending) {
      yield* file.script.startsWith("-- concurrently\n")
        ? // The former release waits for its turn within a statement, which the build of an index waits for in turn.
          Effect.retry(applyConcurrently(sql, file), untilLocked)
        : applyAtOnce(sql, file, lockMs)
    }
    return pending.map((file) => file.name)
  },
  orUnavailable,
  Effect.scoped,
  Effect.provide(Reactivity.layer)
)

const longestTurn = "30 minutes"

/**
 * Waits until no other process is at it. The lock belongs to the connection: when that is lost, every later statement
 * fails, and nothing is applied without the lock. Asked for again and again: who waited for it within a statement would
 * keep an index from being built, which waits until all older statements have ended.
 */
const becomeFirst = Effect.fnUntraced(function* (sql: PgClient.PgClient) {
  // A process whose machine is gone does not keep the lock for hours.
  yield* sql`select set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false)`
  yield* Effect.repeat(
    sql<{ readonly held: boolean }>`select pg_try_advisory_lock(${lockId}::bigint) as held`,
    {
      until: ([row]) => row?.held === true,
      schedule: Schedule.spaced("250 millis").pipe(Schedule.jittered)
    }
  ).pipe(
    Effect.timeoutOrElse({
      duration: longestTurn,
      orElse: () =>
        new StoreUnavailable({
          message: `Another process has been bringing the state store up to date for ${longestTurn}; look what it waits for (pg_stat_activity, application svc-migrate)`
        })
    })
  )
})

const written = (sql: PgClient.PgClient, { name, digest }: File) =>
  sql`insert into schema_migration (name, digest) values (${name}, ${digest})`

const lacksLock = (error: SqlError.SqlError) =>
  error.reason._tag === "LockTimeoutError" || error.reason._tag === "DeadlockError"

const untilLocked = {
  times: 40,
  schedule: Schedule.min([Schedule.exponential("200 millis"), Schedule.spaced("10 seconds")]).pipe(
    Schedule.jittered
  ),
  while: lacksLock
}

const applyAtOnce = (sql: PgClient.PgClient, file: File, lockMs: number) =>
  sql
    .withTransaction(
      Effect.gen(function* () {
        yield* sql`select set_config('lock_timeout', ${`${lockMs}ms`}, true)`
        yield* sql`select pg_temp.run_script(${file.script})`
        yield* written(sql, file)
      })
    )
    .pipe(
      Effect.retry(untilLocked),
      Effect.catchIf(lacksLock, (cause) =>
        Effect.fail(
          new StoreUnavailable({
            message: `Migration ${file.name} did not get its locks: a transaction holds a table for long. End it (see pg_stat_activity) and start again`,
            cause
          })
        )
      )
    )

const builtIndex = /^create\s+(?:unique\s+)?index\s+concurrently\s+(?:if\s+not\s+exists\s+)?"?(\w+)"?\s+on\s/i

/** Without a transaction: what an attempt that was cut off has left is looked for. Waits for locks in nobody's way. */
const applyConcurrently = Effect.fnUntraced(function* (sql: PgClient.PgClient, file: File) {
  const statement = file.script
    .replaceAll(/^--.*$/gm, "")
    .trim()
    .replace(/;$/, "")
  const name = builtIndex.exec(statement)?.[1]?.toLowerCase()
  const [found] =
    name === undefined
      ? []
      : yield* sql<{ readonly valid: boolean }>`
          select i.indisvalid as valid from pg_class c join pg_index i on i.indexrelid = c.oid
          where c.relname = ${name} and c.relnamespace = current_schema()::regnamespace`
  // Left by a build that failed or was cut off: it serves no query, and slows every write.
  if (found?.valid === false) yield* sql`drop index concurrently ${sql(name ?? "")}`
  if (found?.valid !== true) yield* sql.unsafe(statement)
  yield* written(sql, file)
})
