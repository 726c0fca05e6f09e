/** Every sealed value of the store, whatever table it is in: which keys they need, and sealing them anew. */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { Db, repeatable, type Sql } from "./Db.ts"
import { KeyRing, KeyRingError, nonceLength, type Sealed } from "./KeyRing.ts"
import { type SealedValues, TableRules } from "./table-rules.ts"

interface SealedTable extends SealedValues {
  readonly name: string
}

export const sealedTables = Effect.map(TableRules, (rules) =>
  rules.flatMap(
    ({ name, sealed }): ReadonlyArray<SealedTable> => (sealed === undefined ? [] : [{ name, ...sealed }])
  )
)

interface SealedRow {
  readonly key: ReadonlyArray<string>
  readonly key_id: string
  readonly sealed: Uint8Array
}

const keyColumns = (table: SealedTable) => table.key.map(([column]) => column).join(", ")
/** What a `SealedRow` is made of. Names come from the rules, never from outside. */
const rowOf = (table: SealedTable) =>
  `array[${table.key.map(([column]) => `${column}::text`).join(", ")}] as key, key_id, sealed`

/** Values of each key that are tried in each table. One may have been altered; all of them were not. */
const samples = 5

/**
 * Fails unless the ring opens what is stored. A ring of another machine, or a key file that was lost and made anew,
 * shows at the start and not in the first request that needs a secret.
 */
export const checkKeyRing = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const ring = yield* KeyRing
  const stored = new Map<string, Array<SealedTable>>()
  for (const table of yield* sealedTables) {
    for (const id of yield* keysOf(sql, table)) stored.set(id, [...(stored.get(id) ?? []), table])
  }
  const missing = [...stored.keys()].filter((id) => !ring.keyIds.includes(id)).sort()
  if (missing.length > 0) return yield* new KeyRingError({ message: missingKeys(missing, ring.keyIds) })
  for (const [id, tables] of stored) {
    const opened = yield* Effect.forEach(tables, (table) =>
      Effect.flatMap(
        repeatable(
          sql.unsafe<SealedRow>(
            `select ${rowOf(table)} from ${table.name} where key_id = $1 and octet_length(sealed) < 100000 limit ${samples}`,
            [id]
          )
        ),
        (rows) => Effect.forEach(rows, (row) => Effect.result(open(ring, table, row)))
      )
    )
    const results = opened.flat()
    if (results.length > 0 && results.every(Result.isFailure)) {
      return yield* new KeyRingError({
        message: `The key "${id}" of the ring does not open what the store holds under that name: it is another key. ${putBack}`
      })
    }
  }
}).pipe(Effect.withSpan("checkKeyRing"))

const putBack =
  "Put the key back that sealed it: in SVC_ENCRYPTION_KEYS, or in the file encryption.keys of the data folder"

const missingKeys = (missing: ReadonlyArray<string>, present: ReadonlyArray<string>) => {
  const list = (ids: ReadonlyArray<string>) => ids.map((id) => `"${id}"`).join(", ")
  return `The store holds values that are sealed with the key ${list(missing)}, and the ring has only ${list(present)}. ${putBack}`
}

const open = (ring: KeyRing["Service"], table: SealedTable, row: SealedRow) =>
  ring.open(table.place(...row.key), { keyId: row.key_id, bytes: row.sealed })

/** One step down an index for each key, however many rows name it; a scan where the rows are few and short-lived. */
const keysOf = (sql: Sql, table: SealedTable) =>
  Effect.map(
    repeatable(
      sql.unsafe<{ readonly key_id: string }>(`
        with recursive used(key_id) as (
          select min(key_id) from ${table.name}
          union all
          select (select min(t.key_id) from ${table.name} t where t.key_id > u.key_id) from used u where u.key_id is not null
        )
        select key_id from used where key_id is not null`)
    ),
    (rows) => rows.map(({ key_id }) => key_id)
  )

export interface Rotation {
  /** The ring's first key, under which everything is now. */
  readonly keyId: string
  readonly resealed: number
  /** Places of values that no key of the ring opens: they stay as they are. */
  readonly unreadable: ReadonlyArray<string>
  /** Values that somebody else keeps sealing with another key: a process that runs with an older ring. */
  readonly remaining: number
}

/** Passes over a table: rows that were busy in one are done in the next. */
const mostPasses = 5

/**
 * Seals every value with the ring's first key. What is done stays done, so it may be stopped and begun anew at any
 * time; the system may run meanwhile, and several of these may run at once: a row is replaced only while it still
 * holds what was opened.
 */
export const rotateKeys = Effect.fn("rotateKeys")(function* <E = never>(
  onProgress: (resealed: number) => Effect.Effect<void, E> = () => Effect.void
) {
  const { engine: sql } = yield* Db
  const ring = yield* KeyRing
  let resealed = 0
  let remaining = 0
  const unreadable: Array<string> = []
  for (const table of yield* sealedTables) {
    for (let pass = 1; ; pass++) {
      const bad = new Set<string>()
      let [left, after]: [number, SealedRow["key"] | undefined] = [0, undefined]
      for (;;) {
        const rows: ReadonlyArray<SealedRow> = yield* rowsAfter(sql, ring, table, after)
        if (rows.length === 0) break
        after = rows.at(-1)?.key
        const opened: Array<readonly [SealedRow, Sealed]> = []
        for (const row of rows) {
          const value = yield* Effect.result(open(ring, table, row))
          if (Result.isSuccess(value)) opened.push([row, ring.seal(table.place(...row.key), value.success)])
          else bad.add(table.place(...row.key).join("/"))
        }
        const done = yield* replace(sql, table, opened)
        resealed += done
        left += opened.length - done
        yield* onProgress(resealed)
      }
      if (left > 0 && pass < mostPasses) continue
      remaining += left
      unreadable.push(...bad)
      break
    }
  }
  const rotation: Rotation = { keyId: ring.sealingKeyId, resealed, unreadable, remaining }
  return rotation
})

/** The next rows, in the order of their primary key, that another key than the first sealed. */
const rowsAfter = (
  sql: Sql,
  ring: KeyRing["Service"],
  table: SealedTable,
  after: SealedRow["key"] | undefined
) => {
  const bound = table.key.map(([, type], index) => `$${index + 2}::text::${type}`).join(", ")
  return repeatable(
    sql.unsafe<SealedRow>(
      `select ${rowOf(table)} from ${table.name}
       where key_id <> $1 ${after === undefined ? "" : `and (${keyColumns(table)}) > (${bound})`}
       order by ${keyColumns(table)} limit ${table.batch}`,
      [ring.sealingKeyId, ...(after ?? [])]
    )
  )
}

/** Answers how many were replaced. Every sealing has a nonce of its own, which tells whether a row is still the same. */
const replace = (sql: Sql, table: SealedTable, opened: ReadonlyArray<readonly [SealedRow, Sealed]>) => {
  if (opened.length === 0) return Effect.succeed(0)
  const input = opened.map(([row, sealed]) => ({
    ...Object.fromEntries(table.key.map(([column], index) => [column, row.key[index]])),
    new_key_id: sealed.keyId,
    new_sealed: Buffer.from(sealed.bytes).toString("base64"),
    nonce: Buffer.from(row.sealed.subarray(0, nonceLength)).toString("base64")
  }))
  const types = table.key.map(([column, type]) => `${column} ${type}`).join(", ")
  const matches = table.key.map(([column]) => `t.${column} = i.${column}`).join(" and ")
  return Effect.map(
    repeatable(sql`
      with input as materialized (
        select * from jsonb_to_recordset(${sql.json(input)}::jsonb)
          as i(${sql.literal(types)}, new_key_id text, new_sealed text, nonce text)
      ),
      -- Whoever holds a row is writing it; it is looked at again in the next pass.
      free as materialized (
        select ${sql.literal(table.key.map(([column]) => `t.${column}`).join(", "))}
        from ${sql(table.name)} t join input i on ${sql.literal(matches)}
        where substr(t.sealed, 1, ${nonceLength}::int) = decode(i.nonce, 'base64')
        for update of t skip locked
      )
      update ${sql(table.name)} t set key_id = i.new_key_id, sealed = decode(i.new_sealed, 'base64')
      from input i join free using (${sql.literal(keyColumns(table))})
      where ${sql.literal(matches)}
      returning 1 as done`),
    (rows) => rows.length
  )
}
