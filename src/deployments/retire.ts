/** Records of deployments: those that can be chosen stay, of others the newest for a while. */
import * as Effect from "effect/Effect"
import { Db, repeatable } from "#src/store/Db.ts"
import { type Retired, retire } from "#src/store/retire.ts"
import { settings } from "./settings.ts"

/** Of an environment, whatever their age. */
export const keptRecords = 200
const batch = 500

/** One look; answers how many. */
export const retireDeployments = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { keptDays } = yield* settings
  // Index: deployment_newest.
  const old = yield* repeatable(sql<Retired>`
    select d.org_id as "orgId", d.uid from (
      select d.*, row_number() over (
        partition by d.org_id, d.environment_uid order by d.created_at desc, d.uid desc) as place
      from deployment d
    ) d
    join resource r on r.org_id = d.org_id and r.uid = d.uid
    left join app a on a.org_id = d.org_id and a.environment_uid = d.environment_uid
    left join resource c on c.org_id = a.org_id and c.uid = a.uid
    where d.finished_at is not null and (d.state <> 'ready' or d.image_gone)
      and (d.finished_at < now() - make_interval(days => ${keptDays}::int) or d.place > ${keptRecords}::int)
      and d.uid is distinct from a.serving_deployment and d.uid::text is distinct from c.spec->>'deployment'
      and r.deletion_requested_at is null and not r.protected
    limit ${batch}::int`)
  return yield* retire(old, "deployments.retention")
})
