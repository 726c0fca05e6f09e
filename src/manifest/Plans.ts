/** Plans as they were made, kept for 24 hours. They hold the secrets of the manifest, so they are sealed. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

/** The words a plan is bound to. */
export const planPlace = (orgId: string, id: string): ReadonlyArray<string> => ["plan", orgId, id]

export interface StoredPlan {
  readonly id: string
  readonly createdAt: Date
  readonly expiresAt: Date
}

export interface OpenedPlan extends StoredPlan {
  readonly appliedAt: Date | null
  readonly content: Redacted.Redacted
}

interface SealedPlan extends Omit<OpenedPlan, "content"> {
  readonly keyId: string
  readonly bytes: Uint8Array
}

export class Plans extends Context.Service<
  Plans,
  {
    /** A plan that was saved with this `id` before, and not applied, gives way. */
    readonly save: (
      orgId: string,
      id: string,
      content: Redacted.Redacted
    ) => Effect.Effect<StoredPlan, StoreUnavailable>
    /** None: there is no such plan, it has expired, or it was applied and `applied` ones are not asked for. */
    readonly load: (
      orgId: string,
      id: string,
      applied: boolean
    ) => Effect.Effect<Option.Option<OpenedPlan>, StoreUnavailable>
    /** Marks it as applied. False: somebody else was first. */
    readonly consume: (orgId: string, id: string) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/manifest/Plans") {
  static readonly layer = Layer.effect(
    Plans,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const ring = yield* KeyRing
      return Plans.of({
        save: Effect.fn("Plans.save")(function* (orgId, id, content) {
          const { keyId, bytes } = ring.seal(planPlace(orgId, id), content)
          const [row] = yield* repeatable(sql<StoredPlan>`
            insert into plan (org_id, id, expires_at, key_id, sealed)
            select ${orgId}::uuid, ${id}::uuid, now() + interval '24 hours', ${keyId}, ${bytes}
            where ${inOrg(sql, orgId)}
            on conflict (org_id, id) do update set created_at = excluded.created_at, expires_at = excluded.expires_at,
              key_id = excluded.key_id, sealed = excluded.sealed
              where plan.applied_at is null
            returning id, created_at as "createdAt", expires_at as "expiresAt"`)
          if (row === undefined)
            return yield* new StoreUnavailable({ message: "The plan could not be stored" })
          return row
        }),
        load: Effect.fn("Plans.load")(function* (orgId, id, applied) {
          const [row] = yield* repeatable(sql<SealedPlan>`
            select id, created_at as "createdAt", expires_at as "expiresAt", applied_at as "appliedAt",
              key_id as "keyId", sealed as bytes
            from plan
            where org_id = ${orgId}::uuid and id = ${id}::uuid and expires_at > now()
              and (${applied}::boolean or applied_at is null)
              and ${inOrg(sql, orgId)}`)
          if (row === undefined) return Option.none()
          const content = yield* Effect.mapError(
            ring.open(planPlace(orgId, id), row),
            (error) => new StoreUnavailable({ message: error.message, cause: error })
          )
          const { createdAt, expiresAt, appliedAt } = row
          return Option.some({ id: row.id, createdAt, expiresAt, appliedAt, content })
        }),
        consume: Effect.fn("Plans.consume")(function* (orgId, id) {
          const rows = yield* repeatable(sql`
            update plan set applied_at = now()
            where org_id = ${orgId}::uuid and id = ${id}::uuid and applied_at is null and ${inOrg(sql, orgId)}
            returning id`)
          return rows.length > 0
        })
      })
    })
  )
}
