/** Runs of maintenance: looking at a project once, and what came of it. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { AutoRemediation, MaintenanceCategory } from "#schemas/maintenance.ts"
import type { Room } from "#src/loops/leased.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { isSubjectPaused } from "./Findings.ts"
import type { Finding } from "./finding.ts"
import { type Lease, makeLeasedRows } from "./leased-rows.ts"
import { channel, MaintenanceOptions } from "./options.ts"
import type { Ref } from "./Schedules.ts"

export interface RunRecord {
  readonly id: string
  readonly trigger: "schedule" | "manual"
  readonly status: "pending" | "running" | "succeeded" | "failed"
  readonly createdAt: Date
  readonly startedAt: Date | null
  readonly finishedAt: Date | null
  /** How many findings there are in a category, or why it could not be looked at. */
  readonly categories: Readonly<Partial<Record<MaintenanceCategory, CategoryResult>>>
  /** Findings that were not open before, and findings that are no more. */
  readonly opened: number
  readonly resolved: number
  readonly reason: string | null
}

export interface CategoryResult {
  readonly findings: number
  /** Null: all of it was looked at. */
  readonly problem: string | null
}

/** A run that this process may make, and no other process until the lease ends. */
export interface ClaimedRun extends Lease {
  readonly maintenanceUid: string
  readonly trigger: RunRecord["trigger"]
  /** From 1. */
  readonly attempt: number
}

/** What a run tells nothing about, so that findings of it stay as they are. */
export interface NotJudged {
  /** Uids of what was left out: what is in other environments, or has a specification that cannot be read. */
  readonly subjects: ReadonlyArray<string>
  /** Of findings whose check did not know. */
  readonly keys: ReadonlyArray<string>
}

export type RunResult =
  | {
      readonly _tag: "Looked"
      readonly categories: RunRecord["categories"]
      readonly findings: ReadonlyArray<Finding>
      readonly notJudged: NotJudged
      /** Null: nothing is done by itself. */
      readonly remediation: AutoRemediation | null
    }
  | { readonly _tag: "Failed"; readonly reason: string }

/** What did not help is not done again for a while. */
const repeatAfter = "20 hours"

export class Runs extends Context.Service<
  Runs,
  {
    /** Makes the run `id`, or answers the one that is open. None: the maintenance is being deleted. */
    readonly ask: (
      ref: Ref,
      id: string,
      actor: Actor
    ) => Effect.Effect<Option.Option<RunRecord>, StoreUnavailable>
    readonly get: (ref: Ref, id: string) => Effect.Effect<Option.Option<RunRecord>, StoreUnavailable>
    /** Newest first. */
    readonly list: (
      ref: Ref,
      limit: number,
      before?: { readonly createdAt: string; readonly id: string }
    ) => Effect.Effect<ReadonlyArray<RunRecord>, StoreUnavailable>
    readonly claim: (room: Room<ClaimedRun>) => Effect.Effect<ReadonlyArray<ClaimedRun>, StoreUnavailable>
    readonly renew: (runs: ReadonlyArray<ClaimedRun>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    readonly release: (runs: ReadonlyArray<ClaimedRun>) => Effect.Effect<void, StoreUnavailable>
    /** Milliseconds until a run is due; undefined: there is none. */
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
    /**
     * Ends a run. In the statement that stores what was found, findings that are no more are resolved, and the operations
     * that are to be carried out are stored, so that none of them is called before it is known. What was not looked at is
     * left as it is, unless what it was about is gone.
     */
    readonly finish: (run: ClaimedRun, result: RunResult) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/maintenance/Runs") {
  static readonly layer = Layer.effect(
    Runs,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const { leaseMs } = yield* MaintenanceOptions
      const rows = makeLeasedRows<ClaimedRun>(sql, "maintenance_run", leaseMs)

      const get = Effect.fn("Runs.get")(function* ({ orgId, uid }: Ref, id: string) {
        const [row] = yield* repeatable(api<RunRecord>`
          select ${columns(api)} from maintenance_run r
          where r.org_id = ${orgId}::uuid and r.id = ${id}::uuid and r.maintenance_uid = ${uid}::uuid
            and ${inOrg(api, orgId)}`)
        return Option.fromUndefinedOr(row)
      })

      const stored = ({ orgId, id, lease }: ClaimedRun, result: RunResult & { readonly _tag: "Looked" }) => {
        const { categories, notJudged, remediation } = result
        const judged = Object.entries(categories).flatMap(([name, { problem }]) =>
          problem === null ? [name] : []
        )
        const input = result.findings.map((finding) => ({
          ...finding,
          id: randomUUIDv7(),
          action: randomUUIDv7()
        }))
        const risks = remediation?.maximumRisk === "write" ? ["read", "write"] : ["read"]
        return repeatable(sql`
          with held as materialized (
            select org_id, id, maintenance_uid from maintenance_run
            where org_id = ${orgId}::uuid and id = ${id}::uuid and lease_token = ${lease}::bigint
              and finished_at is null for update
          ), input as materialized (
            select h.org_id, h.maintenance_uid, i.*
            from held h, jsonb_to_recordset(${sql.json(input)}::jsonb) as i(id uuid, action uuid, key text,
              category text, severity text, subject jsonb, summary text, risk text, evidence jsonb, remedy jsonb,
              basis text)
          ), before as materialized (
            select f.key from maintenance_finding f join held h using (org_id, maintenance_uid)
            where f.resolved_at is null
          ), seen as (
            insert into maintenance_finding as f (org_id, id, maintenance_uid, key, category, severity, subject, summary,
              risk, evidence, remedy, basis)
            select org_id, id, maintenance_uid, key, category, severity, subject, summary, risk, evidence,
              nullif(remedy, 'null'::jsonb), basis from input
            on conflict (org_id, maintenance_uid, key) do update set category = excluded.category,
              severity = excluded.severity, subject = excluded.subject, summary = excluded.summary,
              risk = excluded.risk, evidence = excluded.evidence, remedy = excluded.remedy, basis = excluded.basis,
              last_seen_at = now(), resolved_at = null,
              first_seen_at = case when f.resolved_at is null then f.first_seen_at else now() end,
              dismissed_at = case when ${stays(sql)} then f.dismissed_at end,
              dismissed_by = case when ${stays(sql)} then f.dismissed_by end,
              dismissed_reason = case when ${stays(sql)} then f.dismissed_reason end
            returning org_id, maintenance_uid, id, key, severity, subject, remedy, dismissed_at
          ), gone as (
            update maintenance_finding f set resolved_at = now()
            from held h
            where f.org_id = h.org_id and f.maintenance_uid = h.maintenance_uid and f.resolved_at is null
              and not exists (select from input i where i.key = f.key)
              and (${isJudged(sql, judged, notJudged)} or not exists (select from resource r
                where r.org_id = f.org_id and r.uid = (f.subject ->> 'id')::uuid and r.deleted_at is null))
            returning f.id
          ), decided as (
            insert into maintenance_action (org_id, id, maintenance_uid, run_id, finding_id, remedy)
            select f.org_id, i.action, f.maintenance_uid, h.id, f.id, f.remedy
            from seen f join input i on i.key = f.key cross join held h
            where f.dismissed_at is null
              and f.remedy ->> 'operationId' = any(array(select jsonb_array_elements_text(
                ${sql.json(remediation?.allowedOperationIds ?? [])}::jsonb)))
              and f.remedy ->> 'risk' = any(array(select jsonb_array_elements_text(${sql.json(risks)}::jsonb)))
              and not exists (select from maintenance_action a where a.org_id = f.org_id and a.finding_id = f.id
                and (a.finished_at is null
                  or a.status <> 'refused' and a.created_at > now() - ${repeatAfter}::interval))
              -- Refused again and again, they would take the places of actions that are not.
              and not ${isSubjectPaused(sql)}
            order by array_position(array['critical', 'warning', 'info'], f.severity), f.key
            limit ${remediation?.maxActionsPerRun ?? 0}::int
            returning id
          )
          update maintenance_run r set status = 'succeeded', finished_at = clock_timestamp(), lease_token = null,
            categories = ${sql.json(categories)}::jsonb,
            opened = (select count(*) from seen s
              where s.dismissed_at is null and not exists (select from before b where b.key = s.key)),
            resolved = (select count(*) from gone)
          from held h where r.org_id = h.org_id and r.id = h.id
          returning case when exists (select from decided) then pg_notify(${channel}, 'begin') end`)
      }

      return Runs.of({
        ask: Effect.fn("Runs.ask")(function* ({ orgId, uid }, id, actor) {
          const [row] = yield* orUnavailable(api<RunRecord>`
            with wanted as materialized (
              select uid from resource
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and deletion_requested_at is null
                and ${inOrg(api, orgId)} for share
            ), made as (
              insert into maintenance_run as r (org_id, id, maintenance_uid, trigger)
              select ${orgId}::uuid, ${id}::uuid, uid, 'manual' from wanted where ${inOrg(api, orgId)}
              on conflict do nothing
              returning ${columns(api)}
            ), audited as (${auditOf(api, orgId, actor, "made")})
            select made.*, pg_notify(${channel}, 'begin') from made`)
          if (row !== undefined) return Option.some(row)
          const [open] = yield* repeatable(api<RunRecord>`
            select ${columns(api)} from maintenance_run r
            where r.org_id = ${orgId}::uuid and r.maintenance_uid = ${uid}::uuid and ${inOrg(api, orgId)}
              and (r.finished_at is null or r.id = ${id}::uuid)
            order by r.id = ${id}::uuid desc limit 1`)
          return Option.fromUndefinedOr(open)
        }),
        get,
        // Index: maintenance_run_listing.
        list: Effect.fn("Runs.list")(function* ({ orgId, uid }, limit, before) {
          return yield* repeatable(api<RunRecord>`
            select ${columns(api)} from maintenance_run r
            where r.org_id = ${orgId}::uuid and r.maintenance_uid = ${uid}::uuid and ${inOrg(api, orgId)}
              and (${before?.id ?? null}::uuid is null or (r.created_at, r.id)
                < (${before?.createdAt ?? null}::timestamptz, ${before?.id ?? null}::uuid))
            order by r.created_at desc, r.id desc limit ${limit}::int`)
        }),
        ...rows,
        finish: (run, result) =>
          Effect.asVoid(
            result._tag === "Looked"
              ? stored(run, result)
              : repeatable(sql`
                  update maintenance_run set status = 'failed', reason = ${result.reason}, lease_token = null,
                    finished_at = clock_timestamp()
                  where org_id = ${run.orgId}::uuid and id = ${run.id}::uuid and lease_token = ${run.lease}::bigint
                    and finished_at is null`)
          )
      })
    })
  )
}

/** Whether a dismissal of the finding `f` holds for what was found now. */
const stays = (sql: Sql) => sql.literal("f.severity = excluded.severity and f.basis = excluded.basis")

/** Whether a run that did not find the finding `f` knows that it is no more. */
const isJudged = (sql: Sql, categories: ReadonlyArray<string>, { subjects, keys }: NotJudged) => {
  const among = (values: ReadonlyArray<string>) =>
    sql`any(array(select jsonb_array_elements_text(${sql.json(values)}::jsonb)))`
  return sql`(f.category = ${among(categories)} and not f.subject ->> 'id' = ${among(subjects)}
    and not f.key = ${among(keys)})`
}

const columns = (sql: Sql) =>
  sql.literal(`r.id, r.trigger, r.status, r.created_at as "createdAt", r.started_at as "startedAt",
    r.finished_at as "finishedAt", r.categories, r.opened, r.resolved, r.reason`)
