/** Keeps what only grows in bounds: rows go in small batches at the age that their table's rule says. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { persistent } from "#src/engine/persistent.ts"
import { Db, repeatable, type Sql } from "./Db.ts"
import { type Retention, TableRules } from "./table-rules.ts"

const batch = 5_000

/** Names and conditions come from the rules, never from outside. */
const removal = (sql: Sql, table: string, { column, age, onlyIf }: Retention) =>
  sql.unsafe(
    `delete from ${table} where ctid in (
       select t.ctid from ${table} t where t.${column} < now() - interval '${age}'
       ${onlyIf === undefined ? "" : `and ${onlyIf}`} limit ${batch}) returning 1`
  )

/** One round. Several processes may do it at once; each row goes once. */
export const tidy = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  for (const { name, retention } of yield* TableRules) {
    if (retention === undefined) continue
    yield* repeatable(removal(sql, name, retention)).pipe(
      Effect.repeat({ while: (rows) => rows.length >= batch }),
      // One table that fails, for whatever reason, keeps no other.
      Effect.catchCause((cause) => Effect.logWarning("old rows could not be removed", cause, { table: name }))
    )
  }
})

export const layer = Layer.effectDiscard(
  Effect.forkScoped(
    Effect.repeat(persistent("remove old rows", tidy), Schedule.spaced("10 minutes").pipe(Schedule.jittered))
  )
)
