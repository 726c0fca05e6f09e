/** Which resources are paused: a pause covers one resource, a project, a kind, an organization, or everything. */
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "./Db.ts"

/** Whether the pause in the row `p` holds now and covers the resource in the row `r`. */
export const coversNow = (sql: Sql): Fragment =>
  sql.literal(`(p.until is null or p.until > now()) and (p.scope = 'all' or p.org_id = r.org_id and (
    p.scope = 'organization' or p.scope = 'kind' and p.target = r.kind
    or p.scope = 'resource' and p.target = r.uid::text
    or p.scope = 'project' and p.target in (r.project_id::text, r.uid::text)))`)

/** Whether the resource in the row `r` is paused. */
export const isPaused = (sql: Sql): Fragment => sql`exists (select from pause p where ${coversNow(sql)})`
