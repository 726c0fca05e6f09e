/** API keys of an organization. The store keeps SHA-256 of the secret: 160 random bits need no slow hash. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"
import { apiKeyBytes, apiKeyOf } from "#src/access/bootstrap.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable } from "#src/store/Db.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { liveOrganization } from "./deletion.ts"

export interface ApiKey {
  readonly id: string
  readonly name: string
  readonly keyPrefix: string
  readonly role: "admin" | "member"
  readonly lastUsedAt: Date | null
  readonly revokedAt: Date | null
  readonly createdAt: Date
}

export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** Revoked ones too, oldest first. */
    readonly list: (orgId: string) => Effect.Effect<ReadonlyArray<ApiKey>, StoreUnavailable>
    /**
     * Answers the same key again if it was made under this reservation before. None: the organization is being deleted,
     * or the caller is no admin of it any more.
     */
    readonly create: (
      orgId: string,
      made: { readonly name: string; readonly role: "admin" | "member" },
      caller: string,
      actor: Actor,
      reservation: Reservation
    ) => Effect.Effect<
      Option.Option<{ readonly id: string; readonly keyPrefix: string; readonly key: Redacted.Redacted }>,
      StoreUnavailable
    >
    /** When it was revoked, which repeating it does not change. None: there is no such key. */
    readonly revoke: (
      orgId: string,
      id: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<Date>, StoreUnavailable>
  }
>()("svc/organizations/ApiKeys") {
  static readonly layer = Layer.effect(
    ApiKeys,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return ApiKeys.of({
        list: Effect.fn("ApiKeys.list")(function* (orgId) {
          return yield* repeatable(sql<ApiKey>`
            select id, name, key_prefix as "keyPrefix", role, last_used_at as "lastUsedAt", revoked_at as "revokedAt",
              created_at as "createdAt"
            from api_key where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)} order by created_at, id`)
        }),
        create: Effect.fn("ApiKeys.create")(function* (orgId, { name, role }, caller, actor, reservation) {
          const { uid: id, keyed } = reservation
          const key = apiKeyOf(randomBytesOf(reservation, "API key", apiKeyBytes))
          const keyPrefix = `${key.slice(0, 8)}...`
          const rows = yield* orUnavailable(sql`
            with here as materialized (${liveOrganization(sql, orgId)}),
            k as (
              insert into api_key (org_id, id, name, key_prefix, digest, role, created_by)
              select ${orgId}::uuid, ${id}::uuid, ${name}::text, ${keyPrefix}::text, ${digestOf(key)}::bytea,
                ${role}::text, ${caller}::uuid
              from here where ${inOrg(sql, orgId)} and exists (select from member m
                where m.org_id = ${orgId}::uuid and m.user_id = ${caller}::uuid and m.role in ('owner', 'admin'))
              on conflict (org_id, id) do nothing
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "k")})
            select id from k`)
          const before = sql`select id from api_key
            where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`
          const known = rows.length > 0 || !keyed ? rows : yield* repeatable(before)
          return known.length === 0 ? Option.none() : Option.some({ id, keyPrefix, key: Redacted.make(key) })
        }),
        revoke: Effect.fn("ApiKeys.revoke")(function* (orgId, id, actor) {
          const [row] = yield* orUnavailable(sql<{ readonly revokedAt: Date }>`
            with k as (
              update api_key set revoked_at = coalesce(revoked_at, now())
              where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
              returning id, revoked_at
            ), audited as (${auditOf(sql, orgId, actor, "k")})
            select revoked_at as "revokedAt" from k`)
          return Option.map(Option.fromUndefinedOr(row), ({ revokedAt }) => revokedAt)
        })
      })
    })
  )
}
