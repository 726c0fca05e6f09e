/** Which databases take connections, as reconciling has last seen them, for measurements. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Availability {
  readonly orgId: string
  readonly uid: string
  /** Null: in doubt. Its last look failed, or it is not ready for a reason that its server need not know of. */
  readonly available: boolean | null
}

/** Reasons for not being ready with which the server takes no connections. */
const serverReasons = [
  "DataLost",
  "FailingOver",
  "NotAnswering",
  "OutOfMemory",
  "Promoting",
  "Recovering",
  "ServerDown",
  "ServerStarting",
  "WrongData"
]

/** A look that is due for so long says that nobody looks: whether the database works is not known then. */
const overdueSeconds = 120

export class DatabaseAvailability extends Context.Service<
  DatabaseAvailability,
  {
    /**
     * Of databases and branches. Those are left out that are being made or deleted, and those that nobody looks at, because
     * the process of their machine is away.
     */
    readonly all: Effect.Effect<ReadonlyArray<Availability>, StoreUnavailable>
  }
>()("svc/databases/DatabaseAvailability") {
  static readonly layer = Layer.effect(
    DatabaseAvailability,
    Effect.map(Db, ({ engine: sql }) =>
      DatabaseAvailability.of({
        // From the rows of work, which are found by kind (index: work_claim_pool), to the resources by their keys.
        all: repeatable(sql<Availability>`
          select r.org_id as "orgId", r.uid,
            case when ready ->> 'status' = 'true' then true
              when ready ->> 'status' = 'false' and (ready ->> 'reason' = any (told.reasons)
                -- Being late hides the reason there, and not here; a look found nothing else to mend.
                or synced ->> 'reason' = any (told.reasons) or synced ->> 'status' = 'true') then false
            end as available
          from work w join resource r on r.org_id = w.org_id and r.uid = w.uid
          cross join (select array(select jsonb_array_elements_text(${sql.json(serverReasons)}::jsonb)) as reasons) told
          cross join lateral (
            select jsonb_path_query_first(r.conditions, '$[*] ? (@.type == "Ready")') as ready,
              jsonb_path_query_first(r.conditions, '$[*] ? (@.type == "Synced")') as synced) c
          where w.kind in ('Database', 'DatabaseBranch') and r.deleted_at is null
            and r.phase not in ('pending', 'provisioning', 'deleting')
            and greatest(w.due_at, w.lease_until) > now() - make_interval(secs => ${overdueSeconds}::int)
            -- What is kept is looked at by the processes that are alive.
            and (not w.kept or exists (select from engine_process p where p.lease_until > now()))`).pipe(
          Effect.withSpan("DatabaseAvailability.all")
        )
      })
    )
  )
}
