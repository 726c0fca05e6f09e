/** What a node of the edge reads from the store: all of it, or the rows that it heard of. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { repeatable, type Sql } from "#src/store/Db.ts"
import { AccessMode, Target } from "../target.ts"

export interface HostRow {
  readonly hostname: string
  readonly environmentUid: string
  readonly redirectTo: string | null
  readonly hstsSeconds: number
}

const Site = Schema.Struct({
  orgId: Schema.String,
  environmentUid: Schema.String,
  target: Schema.NullOr(Target),
  asleep: Schema.Boolean,
  access: AccessMode
})
export type SiteRow = typeof Site.Type

const decodeSite = Schema.decodeUnknownEffect(Site)

/** By primary key, a few thousand at a time. */
export const readHosts = (sql: Sql, names: ReadonlyArray<string> | "all") =>
  repeatable(sql<HostRow>`
    select hostname, environment_uid as "environmentUid", redirect_to as "redirectTo", hsts_seconds as "hstsSeconds"
    from edge_host ${names === "all" ? sql`` : sql`where hostname in (select jsonb_array_elements_text(${sql.json(names)}))`}`)

/** A row that cannot be read is left out: nothing answers then, rather than something that should not. */
export const readSites = Effect.fnUntraced(function* (sql: Sql, uids: ReadonlyArray<string> | "all") {
  const rows = yield* repeatable(sql<{ readonly environmentUid: string }>`
    select org_id as "orgId", environment_uid as "environmentUid", target, asleep, access
    from edge_site ${
      uids === "all"
        ? sql``
        : sql`where environment_uid in (select x::uuid from jsonb_array_elements_text(${sql.json(uids)}) x)`
    }`)
  const sites: Array<SiteRow> = []
  for (const row of rows) {
    const site = yield* Effect.result(decodeSite(row))
    if (site._tag === "Success") sites.push(site.success)
    else yield* Effect.logError(`the site of the environment ${row.environmentUid} cannot be read`)
  }
  return sites
})
