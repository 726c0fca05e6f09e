/** Which page of which list of Stripe's is compared next, by connection. A position survives its process. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type { Room } from "#src/loops/leased.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Ref } from "./Connections.ts"
import { type ObjectType, objectTypes } from "./scopes.ts"

/** Where a comparison has come to. */
export interface Position {
  readonly type: ObjectType
  /** Stripe's id of the last object of the page before; null: the list begins. */
  readonly after: string | null
}

export interface ComparisonJob extends Ref {
  /** Null: a new comparison begins. */
  readonly position: Position | null
  /** When it began. */
  readonly since: Date
  readonly askedAt: Date
  readonly lease: bigint
}

export interface ComparisonOutcome {
  /** Null: it is over. */
  readonly position: Position | null
  readonly inSeconds: number
}

export const leaseSeconds = 300
const isType = Schema.is(Schema.Literals(objectTypes))

export class Comparisons extends Context.Service<
  Comparisons,
  {
    readonly claim: (
      room: Room<ComparisonJob>
    ) => Effect.Effect<ReadonlyArray<ComparisonJob>, StoreUnavailable>
    readonly settle: (job: ComparisonJob, outcome: ComparisonOutcome) => Effect.Effect<void, StoreUnavailable>
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
  }
>()("svc/payments/Comparisons") {
  static readonly layer = Layer.effect(
    Comparisons,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return Comparisons.of({
        // Index: payment_connection_due.
        claim: Effect.fnUntraced(function* ({ most, orgs }) {
          const rooms = Object.fromEntries([...orgs.holders].map(([org, { room }]) => [org, room]))
          const rows = yield* repeatable(sql<{
            readonly orgId: string
            readonly uid: string
            readonly type: string | null
            readonly after: string | null
            readonly since: Date
            readonly askedAt: Date
            readonly lease: bigint
          }>`
            with due as materialized (
              select org_id, uid, due_at from payment_connection where due_at <= now()
              order by due_at limit ${most * 4}::int for update skip locked
            ), chosen as (
              select org_id, uid from (
                select d.*, row_number() over (partition by org_id order by due_at) as nth,
                  coalesce((${sql.json(rooms)}::jsonb ->> org_id::text)::int, ${orgs.others}::int) as room from due d) d
              where nth <= room order by due_at limit ${most}::int
            )
            update payment_connection c set lease_token = nextval('lease_token'),
              due_at = now() + make_interval(secs => ${leaseSeconds}::int),
              compare_since = case when c.compare_type is null then clock_timestamp() else c.compare_since end
            from chosen d where c.org_id = d.org_id and c.uid = d.uid
            returning c.org_id as "orgId", c.uid, c.compare_type as type, c.compare_after as after,
              coalesce(c.compare_since, now()) as since, clock_timestamp() as "askedAt", c.lease_token as lease`)
          return rows.map(({ type, after, ...job }) => ({
            ...job,
            position: isType(type) ? { type, after } : null
          }))
        }),
        settle: ({ orgId, uid, lease }, { position, inSeconds }) =>
          Effect.asVoid(
            repeatable(sql`
              update payment_connection set lease_token = null, compare_type = ${position?.type ?? null}::text,
                compare_after = ${position?.after ?? null}::text,
                due_at = now() + make_interval(secs => ${inSeconds}::float8)
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and lease_token = ${lease}`)
          ),
        nextIn: Effect.map(
          repeatable(sql<{ readonly next: number | null }>`
            select extract(epoch from min(due_at) - now())::float8 as next from payment_connection`),
          ([row]) => row?.next ?? undefined
        )
      })
    })
  )
}
