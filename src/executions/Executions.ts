/** Executions as requests see them. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { CleanupStatus, ExecutionErrorCode, ExecutionState } from "#schemas/execution.ts"
import type { Json } from "#schemas/kind.ts"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store/errors.ts"

export interface ExecutionRecord {
  readonly id: string
  readonly spec: Json
  readonly status: ExecutionState
  readonly exitCode: number | null
  readonly errorCode: ExecutionErrorCode | null
  readonly error: string | null
  readonly imageDigest: string | null
  readonly cleanupStatus: CleanupStatus
  readonly createdAt: Date
  readonly startedAt: Date | null
  readonly finishedAt: Date | null
}

export class Executions extends Context.Service<
  Executions,
  {
    readonly get: (
      orgId: string,
      uid: string
    ) => Effect.Effect<Option.Option<ExecutionRecord>, StoreUnavailable>
    /** Newest first. */
    readonly list: (
      orgId: string,
      projectId: string,
      limit: number,
      status?: ExecutionState
    ) => Effect.Effect<ReadonlyArray<ExecutionRecord>, StoreUnavailable>
    /** How many have not ended. */
    readonly active: (orgId: string, projectId: string) => Effect.Effect<number, StoreUnavailable>
  }
>()("svc/executions/Executions") {
  static readonly layer = Layer.effect(
    Executions,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return Executions.of({
        get: Effect.fn("Executions.get")(function* (orgId, uid) {
          const [row] = yield* repeatable(sql<ExecutionRecord>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.kind = 'Execution' and r.deleted_at is null
              and ${inOrg(sql, orgId)}`)
          return Option.fromUndefinedOr(row)
        }),
        // Index: execution_listing.
        list: (orgId, projectId, limit, status) =>
          repeatable(sql<ExecutionRecord>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.project_id = ${projectId}::uuid and r.kind = 'Execution'
              and r.deleted_at is null and ${inOrg(sql, orgId)}
              and (${status ?? null}::text is null or coalesce(e.status, 'starting') = ${status ?? null}::text)
            order by r.created_at desc, r.uid desc limit ${limit}::int`),
        active: Effect.fn("Executions.active")(function* (orgId, projectId) {
          const [row] = yield* repeatable(sql<{ readonly count: number }>`
            select count(*)::int as count from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.project_id = ${projectId}::uuid and r.kind = 'Execution'
              and r.deleted_at is null and e.finished_at is null and ${inOrg(sql, orgId)}`)
          return row?.count ?? 0
        })
      })
    })
  )
}

const source = (sql: Sql) => sql`
  resource r left join execution e on e.org_id = r.org_id and e.uid = r.uid`

const columns = (sql: Sql) => sql`
  r.uid as id, r.spec, coalesce(e.status, 'starting') as status, e.exit_code as "exitCode",
  e.error_code as "errorCode", e.error, e.image_digest as "imageDigest",
  coalesce(e.cleanup_status, 'pending') as "cleanupStatus", r.created_at as "createdAt",
  e.started_at as "startedAt", e.finished_at as "finishedAt"`
