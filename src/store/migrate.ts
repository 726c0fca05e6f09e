/**
 * Brings the schema of the state store up to date: the numbered files in `migrations/`, each once, in order.
 *
 * Everything happens in one transaction under an advisory lock, so several processes may start at once, and a
 * failed migration leaves nothing behind. A file that was applied and changed since stops the start: what the
 * store holds would not be what the program expects.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as Schedule from "effect/Schedule"
import { isStarting, isTransient, orUnavailable } from "./Db.ts"
import { StoreUnavailable } from "./errors.ts"

const folder = new URL("./migrations/", import.meta.url)
/** Any fixed number does; it only has to be the same in every process. */
const lockId = 7_310_577_205

const load = Effect.promise(async () => {
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

/** Answers the names of the migrations it applied. `url` must be able to create tables and, the first time, roles. */
export const migrate = Effect.fn("migrate")(
  function* (url: Redacted.Redacted) {
    const files = yield* load
    const sql = yield* connect(url)
    return yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`select pg_advisory_xact_lock(${lockId}::bigint)`
        const [version] = yield* sql<{ readonly number: number }>`
        select current_setting('server_version_num')::int as number`
        if (version === undefined || version.number < 150_000) {
          return yield* new StoreUnavailable({ message: "The state store needs Postgres 15 or newer" })
        }
        yield* sql.unsafe(rolesScript(version.number >= 160_000 ? "set" : "member"))
        yield* sql`
        create table if not exists schema_migration (
          name text primary key, digest text not null, applied_at timestamptz not null default now())`
        const applied = new Map(
          (yield* sql<{
            readonly name: string
            readonly digest: string
          }>`select name, digest from schema_migration`).map((row): [string, string] => [
            row.name,
            row.digest
          ])
        )
        const pending = files.filter((file) => !applied.has(file.name))
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
        for (const file of pending) {
          yield* sql`select pg_temp.run_script(${file.script})`
          yield* sql`insert into schema_migration (name, digest) values (${file.name}, ${file.digest})`
        }
        return pending.map((file) => file.name)
      })
    )
  },
  orUnavailable,
  Effect.scoped,
  Effect.provide(Reactivity.layer)
)
