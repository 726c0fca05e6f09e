/**
 * What whoever asked for something may do in the organization now, for work that goes on after their request: a key that
 * was revoked or a member who left counts from the next look on. The rules are those of `svc_access`.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Role } from "#schemas/kind.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Standing {
  readonly slug: string
  readonly billingActive: boolean
  /** Null: they may do nothing there any more. */
  readonly role: Role | null
  /** Of a grant to an agent: the operations that it may call. Null: whatever the role allows. */
  readonly scopes: ReadonlyArray<string> | null
}

/** Whether the operation, which takes the role `admin`, may be called. */
export const mayAsAdmin = ({ role, scopes }: Standing, operation: string): boolean =>
  (role === "admin" || role === "owner") && (scopes === null || scopes.includes(operation))

export class Authority extends Context.Service<
  Authority,
  {
    /** `principal` as in audit records. None: there is no such organization any more. */
    readonly of: (
      orgId: string,
      principal: string
    ) => Effect.Effect<Option.Option<Standing>, StoreUnavailable>
  }
>()("svc/access/Authority") {
  static readonly layer = Layer.effect(
    Authority,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return Authority.of({
        of: Effect.fn("Authority.of")(function* (orgId, principal) {
          const [kind = "", id = ""] = principal.split(":")
          const given = looksLikeUid(id) ? id : null
          const who = (name: string) => (kind === name ? given : null)
          const [row] = yield* repeatable(sql<Standing>`
            select o.slug, o.billing_status = 'active' as "billingActive", w.role, w.scopes
            from organization o
            left join lateral (
              select m.role, null::jsonb as scopes from member m
              where m.org_id = o.id and m.user_id = ${who("user")}::uuid
              union all
              select case when m.role = 'member' then m.role else k.role end, null::jsonb
              from api_key k left join member m on m.user_id = k.created_by and m.org_id = k.org_id
              where k.org_id = o.id and k.id = ${who("key")}::uuid and k.revoked_at is null
                and (k.created_by is null or m.role is not null)
              union all
              select g.role, to_jsonb(g.scopes)
              from agent_grant g join member m on m.org_id = g.org_id and m.user_id = g.user_id
              where g.org_id = o.id and g.id = ${who("grant")}::uuid and g.revoked_at is null
                and (g.role = 'member' or m.role in ('owner', 'admin'))
            ) w on true
            where o.id = ${orgId}::uuid and o.deletion_requested_at is null`)
          return Option.fromUndefinedOr(row)
        })
      })
    })
  )
}
