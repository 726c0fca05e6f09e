/** Audit records of what people do with their own accounts, written by the statement that does it. */
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "#src/store/Db.ts"
import type { Visitor } from "./visitor.ts"

export interface Deed {
  readonly operation: string
  /** Absent: nobody knows who it was. */
  readonly userId?: string
  /** How they proved it. */
  readonly credential: string
}

/** A CTE's body: one record for each row of the CTE `changed`. It belongs to no organization. */
export const audited = (
  sql: Sql,
  deed: Deed,
  { requestId, address }: Visitor,
  changed: string,
  resource: Fragment = sql`null`
): Fragment => sql`
  insert into audit_log (org_id, principal, credential, operation, resource, request_id, address, outcome)
  select null, ${deed.userId === undefined ? "anonymous" : `user:${deed.userId}`}::text, ${deed.credential}::text,
    ${deed.operation}::text, ${resource}, ${requestId}::text, ${address}::text, 200
  from ${sql(changed)}`
