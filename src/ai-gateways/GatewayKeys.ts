/** Keys of gateways. The store keeps SHA-256 of the secret: 160 random bits need no slow hash. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable } from "#src/store/Db.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface GatewayKey {
  readonly id: string
  readonly name: string
  readonly keyPrefix: string
  readonly lastUsedAt: Date | null
  readonly revokedAt: Date | null
  readonly createdAt: Date
}

export interface NewGatewayKey {
  readonly id: string
  readonly name: string
  readonly keyPrefix: string
  readonly secret: Redacted.Redacted
}

export class GatewayKeys extends Context.Service<
  GatewayKeys,
  {
    /** Revoked ones too, oldest first. */
    readonly list: (
      orgId: string,
      gateway: string
    ) => Effect.Effect<ReadonlyArray<GatewayKey>, StoreUnavailable>
    /** Answers the same key again if it was made under this reservation before. None: the gateway is being deleted. */
    readonly create: (
      orgId: string,
      gateway: string,
      name: string,
      actor: Actor,
      reservation: Reservation
    ) => Effect.Effect<Option.Option<NewGatewayKey>, StoreUnavailable>
    /** From here on it opens nothing, and running calls end. Repeating it changes nothing. False: there is no such key. */
    readonly revoke: (
      orgId: string,
      gateway: string,
      id: string,
      actor: Actor
    ) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/ai-gateways/GatewayKeys") {
  static readonly layer = Layer.effect(
    GatewayKeys,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return GatewayKeys.of({
        // Index: ai_gateway_key_listing.
        list: Effect.fn("GatewayKeys.list")(function* (orgId, gateway) {
          return yield* repeatable(sql<GatewayKey>`
            select id, name, key_prefix as "keyPrefix", last_used_at as "lastUsedAt", revoked_at as "revokedAt",
              created_at as "createdAt"
            from ai_gateway_key
            where org_id = ${orgId}::uuid and gateway_uid = ${gateway}::uuid and ${inOrg(sql, orgId)}
            order by created_at, id`)
        }),
        create: Effect.fn("GatewayKeys.create")(function* (orgId, gateway, name, actor, reservation) {
          const { uid: id, keyed } = reservation
          const secret = `svcgw_${randomBytesOf(reservation, "gateway key", 20).toString("hex")}`
          const keyPrefix = `${secret.slice(0, 10)}...`
          const gate = inOrg(sql, orgId)
          const rows = yield* orUnavailable(sql`
            with k as (
              insert into ai_gateway_key (org_id, id, gateway_uid, name, key_prefix, digest)
              select r.org_id, ${id}::uuid, r.uid, ${name}::text, ${keyPrefix}::text, ${digestOf(secret)}::bytea
              from resource r where r.org_id = ${orgId}::uuid and r.uid = ${gateway}::uuid and r.kind = 'AiGateway'
                and r.deletion_requested_at is null and ${gate}
              on conflict (org_id, id) do nothing
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "k")})
            select id from k`)
          const before = sql`select id from ai_gateway_key
            where org_id = ${orgId}::uuid and id = ${id}::uuid and gateway_uid = ${gateway}::uuid and ${gate}`
          const known = rows.length > 0 || !keyed ? rows : yield* repeatable(before)
          return known.length === 0
            ? Option.none()
            : Option.some({ id, name, keyPrefix, secret: Redacted.make(secret) })
        }),
        revoke: Effect.fn("GatewayKeys.revoke")(function* (orgId, gateway, id, actor) {
          const rows = yield* orUnavailable(sql`
            with k as (
              update ai_gateway_key set revoked_at = coalesce(revoked_at, now())
              where org_id = ${orgId}::uuid and id = ${id}::uuid and gateway_uid = ${gateway}::uuid
                and ${inOrg(sql, orgId)}
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "k")})
            -- Whoever makes calls looks at running ones again.
            select pg_notify('svc_change', ${orgId}::text) from k`)
          return rows.length > 0
        })
      })
    })
  )
}
