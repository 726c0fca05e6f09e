/** What the store knows of the database that a branch is made of. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { sharedPreview } from "#schemas/names.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface SourceWanted {
  readonly orgId: string
  readonly projectId: string | null
  readonly sourceDatabaseId?: string
  readonly sourceEnvironment: string
  readonly sourceDatabase: string
}

export interface BranchOrigin {
  readonly uid: string
  readonly environment: string
  /** Which history its data folder belongs to. */
  readonly lineage: string
  /** Whether previews of the project may hold production data. */
  readonly previewData: boolean
  /** Environments of the project that belong to previews of pull requests. */
  readonly previews: ReadonlyArray<string>
}

export class Sources extends Context.Service<
  Sources,
  {
    readonly find: (wanted: SourceWanted) => Effect.Effect<Option.Option<BranchOrigin>, StoreUnavailable>
  }
>()("svc/branches/Sources") {
  static readonly layer = Layer.effect(
    Sources,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return Sources.of({
        // Index: resource_by_place.
        find: Effect.fn("Sources.find")(function* (wanted) {
          const { orgId, projectId, sourceDatabaseId: id } = wanted
          const [row] = yield* repeatable(sql<BranchOrigin>`
            select d.uid, d.environment, coalesce(d.spec ->> 'lineage', d.uid::text) as lineage,
              coalesce(p.spec ->> 'previewData' = 'allowed', false) as "previewData",
              array(select e.name from resource e where e.org_id = d.org_id and e.kind = 'Environment'
                and e.project_id = d.project_id and e.parent_uid <> e.project_id and e.deleted_at is null) as previews
            from resource d join resource p on p.org_id = d.org_id and p.uid = d.project_id
            where d.org_id = ${orgId}::uuid and d.kind = 'Database' and d.project_id = ${projectId}::uuid
              and ${
                id === undefined
                  ? sql`d.environment = ${wanted.sourceEnvironment} and d.name = ${wanted.sourceDatabase}`
                  : sql`d.uid = ${id}::uuid`
              }
              and d.deleted_at is null and d.deletion_requested_at is null`)
          return Option.fromUndefinedOr(row)
        })
      })
    })
  )
}

/** Whether what a preview would hold is production data, and the project does not allow it. */
export const forbiddenInPreview = (
  into: string | null,
  { environment, previewData, previews }: Pick<BranchOrigin, "environment" | "previewData" | "previews">
): boolean =>
  into !== null &&
  (into === sharedPreview || previews.includes(into)) &&
  environment === "production" &&
  !previewData
