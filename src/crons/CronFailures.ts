/** How often cron jobs failed of late, for measurements. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface CronFailure {
  readonly orgId: string
  readonly uid: string
  /** Runs that ended in the last hour, after their last attempt, as failed or timed out. */
  readonly failures: number
}

export class CronFailures extends Context.Service<
  CronFailures,
  {
    /** Of every job, also of those without a run. */
    readonly lastHour: Effect.Effect<ReadonlyArray<CronFailure>, StoreUnavailable>
  }
>()("svc/crons/CronFailures") {
  static readonly layer = Layer.effect(
    CronFailures,
    Effect.map(Db, ({ engine: sql }) =>
      CronFailures.of({
        // Index: cron_run_failed.
        lastHour: repeatable(sql<CronFailure>`
          select s.org_id as "orgId", s.uid, coalesce(f.failures, 0)::float8 as failures
          from cron_schedule s left join (
            select org_id, cron_uid, count(*) as failures from cron_run
            where finished_at > now() - interval '1 hour' and status in ('failed', 'timed_out')
            group by org_id, cron_uid
          ) f on f.org_id = s.org_id and f.cron_uid = s.uid`).pipe(Effect.withSpan("CronFailures.lastHour"))
      })
    )
  )
}
