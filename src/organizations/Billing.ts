/**
 * Whether an organization pays. Operations that cost something ask for `active` (402 otherwise); the status is moved
 * by whoever operates the platform, on the server, or by what a payment processor says.
 */
import * as Effect from "effect/Effect"
import { looksLikeUid } from "#schemas/names.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { BillingStatus } from "./Organizations.ts"

/** Where each status leads. A customer who was lost may come back. */
export const billingMoves: Readonly<Record<BillingStatus, ReadonlyArray<BillingStatus>>> = {
  unpaid: ["active"],
  active: ["past_due"],
  past_due: ["active", "canceled"],
  canceled: ["active"]
}

export interface Billed {
  readonly id: string
  readonly slug: string
  readonly name: string
  readonly billingStatus: BillingStatus
  readonly members: number
  readonly resources: number
  readonly deleting: boolean
}

export type Moved =
  | { readonly _tag: "Missing" }
  | { readonly _tag: "Refused"; readonly from: BillingStatus }
  | {
      readonly _tag: "Moved"
      readonly slug: string
      readonly from: BillingStatus
      readonly to: BillingStatus
    }

/** Every organization of the platform, for whoever operates it; what is on its way out, too. */
export const listOrganizations = (sql: Sql) =>
  repeatable(sql<Billed>`
    select o.id, o.slug, o.name, o.billing_status as "billingStatus",
      (select count(*)::int from member m where m.org_id = o.id) as members,
      (select count(*)::int from resource r where r.org_id = o.id and r.deleted_at is null) as resources,
      o.deletion_requested_at is not null as deleting
    from organization o order by o.slug, o.id`)

/** `org` is an id or a slug. `force` takes any step. */
export const moveBilling = Effect.fn("moveBilling")(function* (
  sql: Sql,
  org: string,
  to: BillingStatus,
  force: boolean,
  actor: Actor
) {
  const named = looksLikeUid(org) ? sql`id = ${org}::uuid` : sql`slug = ${org}`
  for (;;) {
    const [found] = yield* repeatable(sql<{
      readonly id: string
      readonly slug: string
      readonly from: BillingStatus
    }>`
      select id, slug, billing_status as from from organization where ${named} and deletion_requested_at is null`)
    if (found === undefined) return { _tag: "Missing" } satisfies Moved
    const { id, slug, from } = found
    if (from === to) return { _tag: "Moved", slug, from, to } satisfies Moved
    if (!force && !billingMoves[from].includes(to)) return { _tag: "Refused", from } satisfies Moved
    const moved = yield* orUnavailable(sql`
      with o as (
        update organization set billing_status = ${to}, revision = revision + 1
        where id = ${id}::uuid and billing_status = ${from} and deletion_requested_at is null
        returning id
      ), audited as (${auditOf(sql, id, actor, "o")})
      select id from o`)
    if (moved.length > 0) return { _tag: "Moved", slug, from, to } satisfies Moved
    // Somebody else moved it just now; what is there now decides.
  }
})
