/** Keeps what only grows in bounds: rows go in small batches at the age that their table's rule says. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import { type Retention, TableRules } from "#src/store/table-rules.ts"
import { periodic } from "./periodic.ts"
import { removeInBatches } from "./retention.ts"

const batch = 5_000

/** Names and conditions come from the rules, never from outside. */
const removal = (sql: Sql, table: string, { column, age, onlyIf }: Retention) =>
  sql.unsafe(
    `delete from ${table} where ctid in (
       select t.ctid from ${table} t where t.${column} < now() - interval '${age}'
       ${onlyIf === undefined ? "" : `and ${onlyIf}`} limit ${batch}) returning 1`
  )

/** One round. */
export const tidy = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const rules = yield* TableRules
  yield* removeInBatches(
    "remove old rows",
    batch,
    rules.flatMap(({ name, retention }) =>
      retention === undefined ? [] : [repeatable(removal(sql, name, retention))]
    )
  )
})

export const layer = Layer.effectDiscard(periodic({ does: "remove old rows", every: "10 minutes" }, tidy))
