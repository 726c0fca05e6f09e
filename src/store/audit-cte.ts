/** The audit record of a change, written by the statement that makes the change. */
import type { Fragment } from "effect/sql/Statement"
import { inOrg, type Sql } from "./Db.ts"
import type { Actor } from "./records.ts"

/**
 * A CTE's body: one record for each row of the CTE `changed`, whose column `id` says what was changed. No row, no
 * record: what did not happen is not audited as done.
 */
export const auditOf = (sql: Sql, orgId: string, actor: Actor, changed: string): Fragment => sql`
  insert into audit_log (org_id, principal, credential, operation, resource, request_id, address, outcome)
  select ${orgId}::uuid, ${actor.principal}::text, ${actor.credential}::text, ${actor.operation}::text,
    id::text, ${actor.requestId}::text, ${actor.address}::text, ${actor.outcome}::int
  from ${sql(changed)} where ${inOrg(sql, orgId)}`
