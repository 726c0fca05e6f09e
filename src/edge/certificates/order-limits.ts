/**
 * Whether a certificate may be ordered now. An ACME authority limits the account, which is the whole platform's, so each
 * organization has a share of it that its names cannot exceed, however many there are and however often they fail; and
 * what the authority says of one name holds for others too.
 */
import * as Effect from "effect/Effect"
import { repeatable, type Sql } from "#src/store/Db.ts"
import type { CertificateError } from "./errors.ts"

/** In which an organization may place so many orders: what the settings say is for as long. */
const orderHours = 3
const windowSeconds = orderHours * 3600

/** Types of errors that say only that a name waits for others. */
export const waitingTypes = ["orderLimit", "othersLimited"] as const

export interface OrderWait {
  readonly error: CertificateError
  /** Until then none may be ordered. */
  readonly seconds: number
  /** Over which those that wait should come back, so that not all of them come at once. */
  readonly spreadSeconds: number
}

/** A certificate that is to be ordered. */
interface Name {
  readonly orgId: string | null
  readonly name: string
  /** What is served; undefined: there is none yet. */
  readonly chain: string | undefined
}
const isRenewal = ({ chain }: Name) => chain !== undefined

export const makeOrderLimits = (sql: Sql) => ({
  /**
   * Undefined: it may be ordered. An organization may place `most` orders, one of which comes back every `most`th part of
   * {@link orderHours}. An authority that limits one name of an organization is not asked for its others, and one that
   * limits those of two for nobody's: then it is the account. For a quarter of an hour at most, so that a limit on one
   * domain does not keep others for its week.
   */
  wait: Effect.fnUntraced(function* (job: Name, most: number) {
    const { orgId, name } = job
    const each = windowSeconds / most
    const [row] = yield* repeatable(sql<{
      readonly limited: number | null
      readonly spent: number | null
      readonly waiting: number
    }>`
      with limited as (
        select max(least(coalesce(retry_after, due_at), tried_at + interval '15 minutes')) as until
        from edge_certificate
        where error_type = 'rateLimited' and name <> ${name} and tried_at > now() - interval '15 minutes'
          and coalesce(retry_after, due_at) > now()
        having count(distinct coalesce(org_id::text, '')) > 1 or bool_or(org_id is not distinct from ${orgId}::uuid)
      )
      select extract(epoch from (select until from limited) - now())::float8 as limited,
        (select extract(epoch from ordered_until - now())::float8 - ${windowSeconds - each}::float8
          from edge_order_limit
          where org_id = ${orgId}::uuid and renewal = ${isRenewal(job)}) as spent,
        (select count(*)::int from edge_certificate
          where org_id = ${orgId}::uuid and error_type = 'orderLimit') as waiting`)
    const { limited, spent, waiting } = row ?? { limited: null, spent: null, waiting: 0 }
    if (limited !== null && limited > 0 && limited >= (spent ?? 0)) {
      const message =
        "The certificate authority has limited how much it is asked for; this name waits for its turn"
      return {
        error: { type: "othersLimited", message },
        seconds: limited,
        spreadSeconds: 60
      } satisfies OrderWait
    }
    if (spent === null || spent <= 0) return undefined
    const message = `An organization may order ${most} certificates within ${orderHours} hours, which this one has; this name waits for its turn`
    return {
      error: { type: "orderLimit", message },
      seconds: spent,
      spreadSeconds: Math.min(3600, Math.max(60, waiting * each))
    } satisfies OrderWait
  }),
  /** A statement that counts an order of the job, if `placed`, a table of this statement, has a row. */
  count: (job: Name, most: number, placed: "kept") => sql`
    insert into edge_order_limit (org_id, renewal, ordered_until)
    select ${job.orgId}::uuid, ${isRenewal(job)}, now() + make_interval(secs => ${windowSeconds / most}::float8)
    from ${sql(placed)} where ${job.orgId}::uuid is not null
    on conflict (org_id, renewal) do update set
      ordered_until = greatest(edge_order_limit.ordered_until, now()) + make_interval(secs => ${windowSeconds / most}::float8)`
})
