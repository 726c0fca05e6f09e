/** Whether an environment has something that batches can be posted to. */
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "#src/store/Db.ts"

/** An origin that it names, or an app of ours that has taken its requests; it may be asleep. */
export const answersIn = (sql: Sql, orgId: Fragment, environmentUid: Fragment): Fragment => sql`(
  exists (select from resource e where e.org_id = ${orgId} and e.uid = ${environmentUid} and e.spec ? 'origin')
  or exists (select from edge_site s where s.org_id = ${orgId} and s.environment_uid = ${environmentUid}
    and s.app_uid is not null))`
