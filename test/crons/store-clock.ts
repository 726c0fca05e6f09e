/**
 * A store whose clock the test moves, so that the next minute need not be waited for. In a server of the test's own:
 * the functions that tell the time are replaced there for every session, before anything is stored.
 */
import postgres from "postgres"

export interface StoreClock {
  /** Milliseconds since 1970, as the store has it. */
  readonly now: () => number
  /** Puts it forward until so many milliseconds before the next full minute, and tells the runners to look. */
  readonly forwardTo: (beforeMinuteMs: number) => Promise<void>
}

const minute = 60_000

/** Needs the superuser's URL. */
export const storeClock = async (url: string): Promise<StoreClock> => {
  const run = async <A>(body: (sql: postgres.Sql) => Promise<A>): Promise<A> => {
    const sql = postgres(url, { max: 1, onnotice: () => {} })
    try {
      return await body(sql)
    } finally {
      await sql.end()
    }
  }
  await run((sql) =>
    sql
      .unsafe(
        `create schema test_clock;
         grant usage on schema test_clock to public;
         create table test_clock.ahead (by interval not null);
         grant select on test_clock.ahead to public;
         insert into test_clock.ahead values ('0');
         ${["now", "clock_timestamp", "statement_timestamp"]
           .map(
             (name) => `
               alter function pg_catalog.${name}() rename to real_${name};
               create function pg_catalog.${name}() returns timestamptz language sql
                 ${name === "clock_timestamp" ? "volatile" : "stable"}
                 return pg_catalog.real_${name}() + (select by from test_clock.ahead);`
           )
           .join("\n")}`
      )
      .simple()
  )
  let ahead = 0
  const now = () => Date.now() + ahead
  return {
    now,
    forwardTo: async (beforeMinuteMs) => {
      const left = minute - (now() % minute)
      const leap = left - beforeMinuteMs
      ahead += leap > 0 ? leap : leap + minute
      await run(async (sql) => {
        await sql`update test_clock.ahead set by = make_interval(secs => ${ahead / 1_000}::float8)`
        await sql`select pg_notify('svc_cron', '')`
      })
    }
  }
}
