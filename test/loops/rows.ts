/** A table of jobs in Postgres as the suite looks at it from outside: one row per job, due at `due_at`. */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { Db } from "#src/store/Db.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import type { StoredJob, Table } from "./table.ts"

interface Rows {
  readonly table: string
  /** Column of the token of the lease. */
  readonly lease?: string
  /** Whether a row's job is done. */
  readonly done: Fragment
  /** Which row has an id. */
  readonly is?: (id: string) => Fragment
}

export const rowsOf = (
  db: Db["Service"],
  { table, lease = "lease_token", done, is = (id) => db.engine`id = ${id}::uuid` }: Rows
): Pick<Table<never, never>, "makeOrganization" | "stored" | "advance" | "clear"> => {
  const { engine: sql } = db
  return {
    makeOrganization: makeOrganization().pipe(
      Effect.map(({ id }) => id),
      Effect.provideService(Db, db)
    ),
    stored: (id) =>
      sql<StoredJob>`
        select ${sql(lease)} is not null as leased, ${done} as done,
          coalesce(extract(epoch from due_at - clock_timestamp()) * 1000, 0)::float8 as "dueIn"
        from ${sql(table)} where ${is(id)}`.pipe(
        Effect.map(([row]) => row!),
        Effect.orDie
      ),
    advance: (ms) =>
      Effect.asVoid(
        Effect.orDie(sql`update ${sql(table)} set due_at = due_at - ${ms}::float8 * interval '1 millisecond'`)
      ),
    clear: Effect.asVoid(Effect.orDie(sql`delete from ${sql(table)}`))
  }
}
