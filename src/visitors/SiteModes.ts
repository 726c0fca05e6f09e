/** Who may see the sites of a project, as the edge has it, beside what the project's policy says. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { AccessMode } from "#schemas/access-policy.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface SiteMode {
  readonly environmentUid: string
  /** Its slug. */
  readonly environment: string
  readonly wanted: AccessMode
  /** Null: the environment has no site yet, which will begin with what is wanted. */
  readonly actual: AccessMode | null
}

export class SiteModes extends Context.Service<
  SiteModes,
  {
    /** Of every environment of the project, by name. */
    readonly look: (
      orgId: string,
      projectId: string
    ) => Effect.Effect<ReadonlyArray<SiteMode>, StoreUnavailable>
  }
>()("svc/visitors/SiteModes") {
  static readonly layer = Layer.effect(
    SiteModes,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return SiteModes.of({
        // Index: resource_by_place.
        look: Effect.fn("SiteModes.look")(function* (orgId, projectId) {
          return yield* repeatable(sql<SiteMode>`
            select e.uid as "environmentUid", e.name as environment, svc_access_mode(e.org_id, e.uid) as wanted,
              s.access as actual
            from resource e left join edge_site s on s.org_id = e.org_id and s.environment_uid = e.uid
            where e.org_id = ${orgId}::uuid and e.kind = 'Environment' and e.project_id = ${projectId}::uuid
              and e.deleted_at is null
            order by e.name`)
        })
      })
    })
  )
}
