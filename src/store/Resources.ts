/** Reading and writing resources of one organization. Every statement carries the organization. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Condition, Phase } from "#schemas/condition.ts"
import type { Json } from "#schemas/kind.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { fromStored } from "#schemas/stored-spec.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { auditOf } from "./audit-cte.ts"
import type { Change, Written } from "./change.ts"
import { writeChanges } from "./changes.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "./Db.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "./errors.ts"
import { KeyRing } from "./KeyRing.ts"
import type { Actor, ListedRecord, ResourceRecord } from "./records.ts"
import { missingIn, type Referring } from "./reference-checks.ts"
import { conditionsIn, differencesIn, phaseIn } from "./status-columns.ts"

export interface ListFilter {
  readonly kind?: string
  readonly projectId?: string
  readonly environment?: string
  readonly phase?: Phase
  readonly ready?: boolean
}

/** Position in a list ordered by creation: everything after it comes next. */
export interface ListCursor {
  readonly createdAt: string
  readonly uid: string
}

/** A project and one of its environments, as named in a path. */
export interface Place {
  readonly projectId: string
  readonly project: string
  /** Absent when the project has no such environment. */
  readonly environmentUid: string | null
}

export interface ResourceEvent {
  readonly id: string
  readonly type: string
  readonly reason: string
  readonly message: string
  readonly actor: string | null
  readonly generation: number | null
  readonly count: number
  readonly firstAt: Date
  readonly lastAt: Date
}

export class Resources extends Context.Service<
  Resources,
  {
    /** All changes or none, in one statement together with history, audit and queue. */
    readonly write: (
      orgId: string,
      changes: ReadonlyArray<Change>,
      actor: Actor
    ) => Effect.Effect<
      ReadonlyArray<Written>,
      NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable
    >
    /**
     * Why a write of the specification would be refused for what it begins to name: nothing of it is there. For requests
     * that come to no write.
     */
    readonly missing: (
      orgId: string,
      resource: Referring,
      spec: unknown
    ) => Effect.Effect<Refused | undefined, StoreUnavailable>
    readonly get: (
      orgId: string,
      uid: string
    ) => Effect.Effect<Option.Option<ResourceRecord>, StoreUnavailable>
    /** The resources of a kind in a project, or in one environment of it, ordered by name; `null`: in no project. */
    readonly listKind: (
      orgId: string,
      kind: string,
      projectId: string | null,
      environment?: string
    ) => Effect.Effect<ReadonlyArray<ResourceRecord>, StoreUnavailable>
    /** The same, with what lists show of them. */
    readonly showKind: (
      orgId: string,
      kind: string,
      projectId: string | null,
      environment?: string
    ) => Effect.Effect<ReadonlyArray<ListedRecord>, StoreUnavailable>
    /** The one resource with this name in its place; `null` where the kind's scope has no such part. */
    readonly find: (
      orgId: string,
      kind: string,
      projectId: string | null,
      environment: string | null,
      name: string
    ) => Effect.Effect<Option.Option<ResourceRecord>, StoreUnavailable>
    /** Oldest first, at most `limit`. */
    readonly list: (
      orgId: string,
      filter: ListFilter,
      limit: number,
      after?: ListCursor
    ) => Effect.Effect<ReadonlyArray<ResourceRecord>, StoreUnavailable>
    /** Everything that lives in the organization, for exports and plans. */
    readonly all: (orgId: string) => Effect.Effect<ReadonlyArray<ResourceRecord>, StoreUnavailable>
    /** Looks up a project by id or slug, and an environment of it. None: there is no such project. */
    readonly place: (
      orgId: string,
      project: string,
      environment: string
    ) => Effect.Effect<Option.Option<Place>, StoreUnavailable>
    /** Newest first, at most `limit`, older than event `before`. */
    readonly events: (
      orgId: string,
      uid: string,
      limit: number,
      before?: string
    ) => Effect.Effect<ReadonlyArray<ResourceEvent>, StoreUnavailable>
    /** Turns protection against deletion on or off. False: no such resource. */
    readonly protect: (
      orgId: string,
      uid: string,
      on: boolean,
      actor: Actor
    ) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/store/Resources") {
  static readonly layer = Layer.effect(
    Resources,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const ring = yield* KeyRing
      return Resources.of({
        write: (orgId, changes, actor) => writeChanges(sql, ring, orgId, changes, actor),
        missing: (orgId, resource, spec) => repeatable(missingIn(sql, orgId, resource, spec)),
        get: Effect.fn("Resources.get")(function* (orgId, uid) {
          const [row] = yield* repeatable(sql<Row>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.deleted_at is null and ${inOrg(sql, orgId)}`)
          return row === undefined ? Option.none() : Option.some(toRecord(row))
        }),
        // Index: resource_by_place.
        listKind: Effect.fn("Resources.listKind")(function* (orgId, kind, projectId, environment) {
          const rows = yield* repeatable(sql<Row>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.kind = ${kind}
              and ${projectId === null ? sql`r.project_id is null` : sql`r.project_id = ${projectId}::uuid`}
              and (${environment ?? null}::text is null or r.environment = ${environment ?? null}::text)
              and r.deleted_at is null and ${inOrg(sql, orgId)}
            order by r.name, r.environment`)
          return rows.map(toRecord)
        }),
        // Index: resource_by_place.
        showKind: Effect.fn("Resources.showKind")(function* (orgId, kind, projectId, environment) {
          const rows = yield* repeatable(sql<ListedRow>`
            select r.uid, r.kind, r.environment, r.name, r.parent_uid as "parentUid", r.spec, r.status, r.phase,
              r.conditions, r.deletion_requested_at as "deletionRequestedAt", r.created_at as "createdAt",
              r.updated_at as "updatedAt",
              case when r.phase <> 'ready' then (select w.last_error from work w
                where w.org_id = r.org_id and w.uid = r.uid and ${inOrg(sql, orgId)}) end as "lastError"
            from resource r
            where r.org_id = ${orgId}::uuid and r.kind = ${kind}
              and ${projectId === null ? sql`r.project_id is null` : sql`r.project_id = ${projectId}::uuid`}
              ${environment === undefined ? sql`` : sql`and r.environment = ${environment}::text`}
              and r.deleted_at is null and ${inOrg(sql, orgId)}
            order by r.name, r.environment`)
          return rows.map((row) => new Listed(orgId, row))
        }),
        // Index: resource_by_place.
        find: Effect.fn("Resources.find")(function* (orgId, kind, projectId, environment, name) {
          const [row] = yield* repeatable(sql<Row>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.kind = ${kind} and r.name = ${name}
              and ${projectId === null ? sql`r.project_id is null` : sql`r.project_id = ${projectId}::uuid`}
              and ${environment === null ? sql`r.environment is null` : sql`r.environment = ${environment}::text`}
              and r.deleted_at is null and ${inOrg(sql, orgId)}
            order by r.deletion_requested_at nulls first limit 1`)
          return row === undefined ? Option.none() : Option.some(toRecord(row))
        }),
        // Index: resource_listing.
        list: Effect.fn("Resources.list")(function* (orgId, filter, limit, after) {
          const ready = filter.ready === undefined ? null : filter.ready ? "true" : "false"
          const rows = yield* repeatable(sql<Row>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.deleted_at is null and ${inOrg(sql, orgId)}
              and (${after?.uid ?? null}::uuid is null
                or (r.created_at, r.uid) > (${after?.createdAt ?? null}::timestamptz, ${after?.uid ?? null}::uuid))
              and (${filter.kind ?? null}::text is null or r.kind = ${filter.kind ?? null}::text)
              and (${filter.projectId ?? null}::uuid is null
                or r.project_id = ${filter.projectId ?? null}::uuid or r.uid = ${filter.projectId ?? null}::uuid)
              and (${filter.environment ?? null}::text is null or r.environment = ${filter.environment ?? null}::text)
              and (${filter.phase ?? null}::text is null or r.phase = ${filter.phase ?? null}::text)
              and (${ready}::text is null
                or (r.conditions @> '[{"type": "Ready", "status": "true"}]') = (${ready}::text = 'true'))
            order by r.created_at, r.uid limit ${limit}::int`)
          return rows.map(toRecord)
        }),
        all: Effect.fn("Resources.all")(function* (orgId) {
          const rows = yield* repeatable(sql<Row>`
            select ${columns(sql)} from ${source(sql)}
            where r.org_id = ${orgId}::uuid and r.deleted_at is null and ${inOrg(sql, orgId)}
            order by r.created_at, r.uid`)
          return rows.map(toRecord)
        }),
        place: Effect.fn("Resources.place")(function* (orgId, project, environment) {
          const [row] = yield* repeatable(sql<Place>`
            select p.uid as "projectId", p.name as project, e.uid as "environmentUid"
            from resource p
            left join resource e on e.org_id = ${orgId}::uuid and e.kind = 'Environment' and e.project_id = p.uid
              and e.environment is null and e.name = ${environment} and e.deleted_at is null
            where p.org_id = ${orgId}::uuid and p.kind = 'Project' and p.deleted_at is null and ${inOrg(sql, orgId)}
              and ${
                looksLikeUid(project)
                  ? sql`p.uid = ${project}::uuid`
                  : sql`p.project_id is null and p.environment is null and p.name = ${project}`
              }
            -- What is being deleted gives way to what took its name.
            order by p.deletion_requested_at nulls first, e.deletion_requested_at nulls first limit 1`)
          return Option.fromUndefinedOr(row)
        }),
        events: Effect.fn("Resources.events")(function* (orgId, uid, limit, before) {
          return yield* repeatable(sql<ResourceEvent>`
            select id::text as id, type, reason, message, actor, generation, count,
              first_at as "firstAt", last_at as "lastAt"
            from resource_event
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid and ${inOrg(sql, orgId)}
              and (${before ?? null}::bigint is null or id < ${before ?? null}::bigint)
            order by resource_event.id desc limit ${limit}::int`)
        }),
        protect: Effect.fn("Resources.protect")(function* (orgId, uid, on, actor) {
          const message = on ? "Protected against deletion" : "Protection against deletion removed"
          const rows = yield* orUnavailable(sql`
            with changed as (
              update resource set protected = ${on}, revision = nextval('resource_revision'),
                txid = pg_current_xact_id(), updated_at = now()
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and deleted_at is null and ${inOrg(sql, orgId)}
              returning uid, generation
            ), history as (
              insert into resource_event (org_id, uid, type, reason, message, actor, generation)
              select ${orgId}::uuid, uid, 'Normal', ${on ? "Protected" : "Unprotected"}::text, ${message}::text,
                ${actor.principal}::text, generation
              from changed where ${inOrg(sql, orgId)}
            ), asked as (select uid as id from changed),
            audited as (${auditOf(sql, orgId, actor, "asked")})
            select uid, pg_notify('svc_change', ${orgId}::text) from changed`)
          return rows.length > 0
        })
      })
    })
  )
}

/** A row of {@link source} with the columns of {@link columns}. */
export type Row = Omit<ResourceRecord, "phase" | "conditions" | "differences"> & {
  readonly phase: string
  readonly conditions: unknown
  readonly differences: unknown
}

export const columns = (sql: Sql) => sql`
  r.org_id as "orgId", r.uid, r.kind, r.project_id as "projectId",
  case when r.kind = 'Project' then r.name else p.name end as project,
  r.environment, r.name, r.parent_uid as "parentUid", r.spec, r.generation, r.status,
  r.observed_generation as "observedGeneration", r.phase, r.phase_since as "phaseSince", r.conditions, r.differences,
  r.revision::text as revision, r.protected, r.managed_by as "managedBy",
  r.deletion_requested_at as "deletionRequestedAt", r.created_at as "createdAt", r.updated_at as "updatedAt",
  coalesce(w.attempt, 0) as attempt, case when not w.kept or w.due_at <= now() then w.due_at end as "nextAttemptAt", w.last_error as "lastError",
  w.handled_retry as "handledRetry",
  case when w.waiting_on is not null then coalesce(
    (select jsonb_build_object('kind', d.kind, 'project', dp.name, 'environment', d.environment, 'name', d.name)
      from resource d left join resource dp on dp.org_id = d.org_id and dp.uid = d.project_id
      where d.org_id = w.org_id and d.uid = w.waiting_on),
    w.waiting_for || jsonb_build_object('project', (select dp.name from resource dp
      where dp.org_id = w.org_id and dp.uid = (w.waiting_for->>'projectId')::uuid))
  ) end as "waitingOn"`

export const source = (sql: Sql) => sql`
  resource r
  left join work w on w.org_id = r.org_id and w.uid = r.uid
  left join resource p on p.org_id = r.org_id and p.uid = r.project_id`

type ListedRow = Pick<Row, Exclude<keyof ListedRecord, "orgId" | "lastError">> & {
  readonly lastError: string | null
}

const once = <A>(read: () => A): (() => A) => {
  let value: A | undefined
  return () => (value ??= read())
}

// What the engine found is decoded when it is asked for: most lists show little of it, and it takes as long as the rest.

export const toRecord = (row: Row): ResourceRecord => {
  const conditions = once(() => conditionsIn(row.conditions))
  const differences = once(() => differencesIn(row.differences))
  return {
    ...row,
    spec: fromStored(row.kind, row.spec),
    get phase() {
      return phaseIn(row.phase, row.deletionRequestedAt !== null, conditions)
    },
    get conditions() {
      return conditions()
    },
    get differences() {
      return differences()
    }
  }
}

/** A class, since there are many: getters of objects each by itself take ten times the memory. */
class Listed implements ListedRecord {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly status: Json | null
  readonly deletionRequestedAt: Date | null
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly lastError: string | null
  readonly #stored: Pick<ListedRow, "phase" | "conditions">
  #conditions: ReadonlyArray<Condition> | undefined
  constructor(orgId: string, row: ListedRow) {
    this.orgId = orgId
    this.uid = row.uid
    this.kind = row.kind
    this.environment = row.environment
    this.name = row.name
    this.parentUid = row.parentUid
    this.spec = fromStored(row.kind, row.spec)
    this.status = row.status
    this.deletionRequestedAt = row.deletionRequestedAt
    this.createdAt = row.createdAt
    this.updatedAt = row.updatedAt
    this.lastError = row.lastError
    this.#stored = row
  }
  get phase() {
    return phaseIn(this.#stored.phase, this.deletionRequestedAt !== null, () => this.conditions)
  }
  get conditions() {
    this.#conditions ??= conditionsIn(this.#stored.conditions)
    return this.#conditions
  }
}
