/** Organizations as records: made, renamed, and marked for deletion. What deletion removes, `OrganizationFinalizer.ts` sees to. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as SqlError from "effect/sql/SqlError"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql, violatedUnique } from "#src/store/Db.ts"
import { NameTaken, Refused } from "#src/store/errors.ts"
import type { Actor } from "#src/store/records.ts"
import { TableRules } from "#src/store/table-rules.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type Deletion, requestDeletion } from "./deletion.ts"

export type BillingStatus = "unpaid" | "active" | "past_due" | "canceled"

export interface Organization {
  readonly id: string
  readonly name: string
  readonly slug: string
  readonly isPersonal: boolean
  readonly billingStatus: BillingStatus
  readonly revision: string
  readonly createdAt: Date
}

export class Organizations extends Context.Service<
  Organizations,
  {
    readonly ofUser: (userId: string) => Effect.Effect<ReadonlyArray<Organization>, StoreUnavailable>
    readonly get: (orgId: string) => Effect.Effect<Option.Option<Organization>, StoreUnavailable>
    /** A team organization with its first owner. Refused if it was made before. */
    readonly create: (
      made: {
        readonly id: string
        readonly name: string
        readonly slug: string
        readonly billingStatus: BillingStatus
      },
      owner: string,
      actor: Actor
    ) => Effect.Effect<Organization, NameTaken | Refused | StoreUnavailable>
    /** None: it is gone, or not of the expected revision. */
    readonly update: (
      orgId: string,
      change: { readonly name?: string; readonly slug?: string; readonly expectedRevision?: string },
      actor: Actor
    ) => Effect.Effect<Option.Option<Organization>, NameTaken | StoreUnavailable>
    /** Stores that the organization is to go, with everything in it. From then on nobody sees it. */
    readonly remove: (
      orgId: string,
      by: { readonly userId: string; readonly expectedRevision?: string },
      actor: Actor
    ) => Effect.Effect<Deletion, StoreUnavailable>
  }
>()("svc/organizations/Organizations") {
  static readonly layer = Layer.effect(
    Organizations,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      const rules = yield* TableRules
      return Organizations.of({
        // Across organizations, so as the engine; the user is who the credential belongs to.
        ofUser: Effect.fn("Organizations.ofUser")(function* (userId) {
          return yield* repeatable(engine<Organization>`
            select ${columns(engine)} from organization o join member m on m.org_id = o.id
            where m.user_id = ${userId}::uuid and o.deletion_requested_at is null order by o.slug`)
        }),
        get: Effect.fn("Organizations.get")(function* (orgId) {
          const [row] = yield* repeatable(sql<Organization>`
            select ${columns(sql)} from organization o
            where o.id = ${orgId}::uuid and o.deletion_requested_at is null and ${inOrg(sql, orgId)}`)
          return Option.fromUndefinedOr(row)
        }),
        create: Effect.fn("Organizations.create")(function* (
          { id: orgId, name, slug, billingStatus },
          owner,
          actor
        ) {
          const rows = yield* slugFree(
            slug,
            sql<Organization>`
              with o as (
                insert into organization (id, name, slug, is_personal, billing_status)
                select ${orgId}::uuid, ${name}::text, ${slug}::text, false, ${billingStatus}::text
                where ${inOrg(sql, orgId)}
                on conflict (id) do nothing
                returning *
              ), owner as (
                insert into member (org_id, id, user_id, role)
                select id, ${randomUUIDv7()}::uuid, ${owner}::uuid, 'owner' from o where ${inOrg(sql, orgId)}
              ), audited as (${auditOf(sql, orgId, actor, "o")})
              select ${columns(sql)} from o`
          )
          return (
            rows[0] ??
            (yield* new Refused({
              code: "deleted_since",
              message: "An earlier try of this request created it, and you left or deleted it since"
            }))
          )
        }),
        update: Effect.fn("Organizations.update")(function* (orgId, change, actor) {
          const [row] = yield* slugFree(
            change.slug ?? "",
            sql<Organization>`
              with o as (
                update organization set
                  name = coalesce(${change.name ?? null}::text, name),
                  slug = coalesce(${change.slug ?? null}::text, slug),
                  revision = revision + 1
                where id = ${orgId}::uuid and deletion_requested_at is null and ${inOrg(sql, orgId)}
                  and (${change.expectedRevision ?? null}::bigint is null
                    or revision = ${change.expectedRevision ?? null}::bigint)
                returning *
              ), audited as (${auditOf(sql, orgId, actor, "o")})
              select ${columns(sql)} from o`
          )
          return Option.fromUndefinedOr(row)
        }),
        remove: Effect.fn("Organizations.remove")(function* (orgId, by, actor) {
          return yield* orUnavailable(requestDeletion(sql, rules, orgId, by, actor))
        })
      })
    })
  )
}

const columns = (sql: Sql) => sql`
  o.id, o.name, o.slug, o.is_personal as "isPersonal", o.billing_status as "billingStatus",
  o.revision::text as revision, o.created_at as "createdAt"`

const slugFree = <A, R>(slug: string, self: Effect.Effect<A, SqlError.SqlError, R>) =>
  self.pipe(
    Effect.catchIf(
      (error) => SqlError.isSqlError(error) && violatedUnique(error) === "organization_slug_pkey",
      () => Effect.fail(new NameTaken({ message: `The slug "${slug}" is taken; choose another` }))
    ),
    orUnavailable
  )
