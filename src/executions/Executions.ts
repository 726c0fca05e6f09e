/** Executions as requests see them. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { CleanupStatus, ExecutionErrorCode, ExecutionState } from "#schemas/execution.ts"
import type { Json } from "#schemas/kind.ts"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

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

export interface Place {
  readonly orgId: string
  readonly projectId: string
  readonly uid: string
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
    /**
     * Takes one of the places that an organization and a project have for executions that have not ended. Answers which
     * of them has none left.
     */
    readonly enter: (
      place: Place,
      most: { readonly organization: number; readonly project: number | null }
    ) => Effect.Effect<"organization" | "project" | undefined, StoreUnavailable>
    /** Gives it back: what was to be made was not. Executions that end give theirs back by themselves. */
    readonly leave: (place: Place) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/executions/Executions") {
  static readonly layer = Layer.effect(
    Executions,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const leave = ({ orgId, projectId, uid }: Place) =>
        Effect.asVoid(
          repeatable(sql`
            with of_project as (
              update execution_room set uids = array_remove(uids, ${uid}::uuid)
              where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and ${inOrg(sql, orgId)}
            )
            update execution_org_room set uids = array_remove(uids, ${uid}::uuid)
            where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)}`)
        )

      return Executions.of({
        get: Effect.fn("Executions.get")(function* (orgId, uid) {
          const [row] = yield* repeatable(sql<ExecutionRecord>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.kind = 'Execution' and r.deleted_at is null
              and ${inOrg(sql, orgId)}`)
          return Option.fromUndefinedOr(row)
        }),
        list: (orgId, projectId, limit, status) => {
          const gate = inOrg(sql, orgId)
          // Index: execution_listing.
          if (status === undefined)
            return repeatable(sql<ExecutionRecord>`
              select ${columns(sql)} from ${source(sql)}
              where r.org_id = ${orgId}::uuid and r.project_id = ${projectId}::uuid and r.kind = 'Execution'
                and r.deleted_at is null and ${gate}
              order by r.created_at desc, r.uid desc limit ${limit}::int`)
          // Index: execution_status. One that nobody has looked at yet has no such row, but a place.
          return repeatable(sql<ExecutionRecord>`
            with chosen as materialized (
              (select e.uid from execution e
               where e.org_id = ${orgId}::uuid and e.project_uid = ${projectId}::uuid and e.status = ${status}
                 and ${gate}
               order by e.uid desc limit ${limit}::int)
              union
              select unnest(a.uids) from execution_org_room a
              where a.org_id = ${orgId}::uuid and ${gate}
                and ${status}::text in ('starting', 'running')
            )
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.uid in (select uid from chosen) and r.kind = 'Execution'
              and r.project_id = ${projectId}::uuid and r.deleted_at is null and ${gate} and coalesce(e.status, 'starting') = ${status}::text
            order by r.created_at desc, r.uid desc limit ${limit}::int`)
        },
        enter: Effect.fn("Executions.enter")(function* (place, most) {
          const ofOrg = yield* repeatable(enter(sql, place, organizationRoom(sql, place), most.organization))
          if (ofOrg.length === 0) return "organization"
          if (most.project === null) return undefined
          const ofProject = yield* Effect.onError(
            repeatable(enter(sql, place, projectRoom(sql, place), most.project)),
            () => Effect.ignore(leave(place))
          )
          if (ofProject.length > 0) return undefined
          yield* leave(place)
          return "project"
        }),
        leave
      })
    })
  )
}

/**
 * Whoever comes second waits for the row and then sees who is in. What began after this statement did, it cannot look
 * up: an id that nothing is known of counts for some minutes (its first digits are the time at which it was made).
 */
const enter = (sql: Sql, { orgId, uid }: Place, room: ReturnType<typeof projectRoom>, most: number) => {
  const gate = inOrg(sql, orgId)
  const madeAt = sql`to_timestamp(('x' || replace(left(u::text, 13), '-', ''))::bit(48)::bigint / 1000.0)`
  const active = sql`array(
    select u from unnest(a.uids) u
    left join resource r on r.org_id = ${orgId}::uuid and r.uid = u and r.deleted_at is null and ${gate}
    left join execution e on e.org_id = ${orgId}::uuid and e.uid = u and ${gate}
    where e.finished_at is null and (r.uid is not null or ${madeAt} > now() - interval '5 minutes') and u <> ${uid}::uuid)`
  return sql`
    insert into ${room.table} as a (${room.columns}, uids)
    select ${room.values}, array[${uid}::uuid] where ${gate} and ${most}::int > 0
    on conflict (${room.columns}) do update set uids = ${active} || excluded.uids
      where cardinality(${active}) < ${most}::int
    returning 1`
}

const projectRoom = (sql: Sql, { orgId, projectId }: Place) => ({
  table: sql`execution_room`,
  columns: sql`org_id, project_uid`,
  values: sql`${orgId}::uuid, ${projectId}::uuid`
})
const organizationRoom = (sql: Sql, { orgId }: Place) => ({
  table: sql`execution_org_room`,
  columns: sql`org_id`,
  values: sql`${orgId}::uuid`
})

const source = (sql: Sql) => sql`
  resource r left join execution e on e.org_id = r.org_id and e.uid = r.uid`

const columns = (sql: Sql) => sql`
  r.uid as id, r.spec, coalesce(e.status, 'starting') as status, e.exit_code as "exitCode",
  e.error_code as "errorCode", e.error, e.image_digest as "imageDigest",
  coalesce(e.cleanup_status, 'pending') as "cleanupStatus", r.created_at as "createdAt",
  e.started_at as "startedAt", e.finished_at as "finishedAt"`
