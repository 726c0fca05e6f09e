/** Whether what a path names by id is there, asked before a request's body is read. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { AccessTable } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export class AccessRecords extends Context.Service<
  AccessRecords,
  {
    readonly exists: (
      orgId: string,
      table: AccessTable,
      id: string
    ) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/access/AccessRecords") {
  static readonly layer = Layer.effect(
    AccessRecords,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return AccessRecords.of({
        exists: Effect.fnUntraced(function* (orgId, table, id) {
          const rows = yield* repeatable(sql`
            select from ${sql(table)} where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`)
          return rows.length > 0
        })
      })
    })
  )
}
