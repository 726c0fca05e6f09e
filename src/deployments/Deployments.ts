/**
 * How deployments go. Every change by the reconciler carries its fencing number, moves on from the states that it may
 * come from only, and writes a line into the deployment's log with it.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Fragment } from "effect/sql/Statement"
import type { DeploymentErrorCode, DeploymentState } from "#schemas/deployment.ts"
import type { Json } from "#schemas/kind.ts"
import type { LogReader, LogRecord } from "#src/container-logs/log-store.ts"
import { storableText } from "#src/storable.ts"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import { wakeReconciler } from "#src/store/work-rows.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { emission } from "#src/webhooks/events.ts"

/** Ready ones of an environment, besides the one that answers, whose images are kept. */
export const keptReady = 5

export interface DeploymentRef {
  readonly orgId: string
  readonly uid: string
}
export interface FencedDeployment extends DeploymentRef {
  readonly fence: bigint
}

export interface DeploymentRow {
  readonly uid: string
  readonly environmentUid: string
  readonly createdAt: Date
  readonly state: DeploymentState
  /** How long it has been in this state, by the store's clock. */
  readonly stateAgeMs: number
  readonly errorCode: DeploymentErrorCode | null
  readonly error: string | null
  readonly imageId: string | null
  readonly imageDigest: string | null
  readonly imageGone: boolean
  /** A newer one of the environment is on its way, or ready. */
  readonly overtaken: boolean
}

export interface DeploymentRecord {
  readonly id: string
  readonly environment: string
  readonly spec: Json
  readonly state: DeploymentState
  readonly errorCode: DeploymentErrorCode | null
  readonly error: string | null
  readonly imageDigest: string | null
  readonly imageGone: boolean
  /** Its instances take the requests. */
  readonly active: boolean
  readonly createdAt: Date
  readonly readyAt: Date | null
  readonly finishedAt: Date | null
}

export type Outcome = "failed" | "cancelled" | "superseded"
export interface Ending {
  readonly state: Outcome
  readonly errorCode: DeploymentErrorCode | null
  readonly error: string | null
  /** The last lines of what its instances printed. */
  readonly printed: ReadonlyArray<Pick<LogRecord, "stream" | "at" | "content">>
}

/** False: a later reconcile was here, or it is in another state; nothing was done. */
type Change = Effect.Effect<boolean, StoreUnavailable>

const isUuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export class Deployments extends Context.Service<
  Deployments,
  {
    readonly find: (ref: DeploymentRef) => Effect.Effect<Option.Option<DeploymentRow>, StoreUnavailable>
    readonly begin: (ref: FencedDeployment) => Change
    readonly claim: (ref: FencedDeployment) => Change
    readonly moveTo: (
      ref: FencedDeployment,
      from: ReadonlyArray<DeploymentState>,
      to: "fetching" | "building" | "starting" | "ready",
      line: string,
      image?: { readonly id: string; readonly digest: string | null }
    ) => Change
    /**
     * Adds what a build prints where the log ends after `from` bytes, or wherever it ends, and answers where it ends then.
     * Undefined: it ends elsewhere, because somebody else builds it, or it is not being built.
     */
    readonly print: (
      ref: DeploymentRef,
      from: number | undefined,
      pieces: ReadonlyArray<{ readonly stream: string; readonly at?: Date; readonly content: Uint8Array }>
    ) => Effect.Effect<number | undefined, StoreUnavailable>
    readonly wakeReconciler: (ref: DeploymentRef) => Effect.Effect<void, StoreUnavailable>
    /** Of these, the ones that are being built. */
    readonly building: (
      refs: ReadonlyArray<DeploymentRef>
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** Of these uploads, as `organization/digest`, the ones that a deployment is still to be built of. */
    readonly wantingUploads: (
      refs: ReadonlyArray<{ readonly orgId: string; readonly digest: string }>
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** A failure is announced by the statement that stores it, once. */
    readonly end: (ref: FencedDeployment & { readonly projectId: string | null }, ending: Ending) => Change
    readonly forget: (ref: FencedDeployment) => Change
    /** Of these, the ones that have no image yet and are on their way. */
    readonly wantingImage: (
      refs: ReadonlyArray<DeploymentRef>
    ) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    readonly get: (
      orgId: string,
      uid: string
    ) => Effect.Effect<Option.Option<DeploymentRecord>, StoreUnavailable>
    /** Newest first; of one environment, or of all of the project. */
    readonly list: (
      orgId: string,
      place: { readonly projectId: string; readonly environment: string | undefined },
      limit: number
    ) => Effect.Effect<ReadonlyArray<DeploymentRecord>, StoreUnavailable>
    /** The newest ready one whose image is kept and that is older than the one that answers */
    readonly before: (
      orgId: string,
      environmentUid: string
    ) => Effect.Effect<string | undefined, StoreUnavailable>
    readonly now: Effect.Effect<Date, StoreUnavailable>
    readonly log: LogReader
    /** Images that are to be kept, of all deployments. */
    readonly keptImages: Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** Images of deployments that nobody can choose any more; some at a time. */
    readonly looseImages: Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** Says that nobody can be given this image any more. False: a deployment wants it kept again. */
    readonly imageReleased: (imageId: string) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/deployments/Deployments") {
  static readonly layer = Layer.effect(
    Deployments,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const one = ({ orgId, uid }: DeploymentRef) => sql`org_id = ${orgId}::uuid and uid = ${uid}::uuid`
      const fenced = (ref: FencedDeployment) => sql`${one(ref)} and fence <= ${ref.fence}`
      const changed = Effect.map((rows: ReadonlyArray<unknown>) => rows.length > 0)

      /** CTEs that add lines to the log of the row that the CTE `moved` has changed; it answers `log_position`. */
      const logged = (
        ref: DeploymentRef,
        lines: ReadonlyArray<{
          readonly stream: string
          readonly at?: Date
          readonly content: Uint8Array
        }>
      ): Fragment => {
        let offset = 0
        const rows = lines.map(({ stream, at, content }) => {
          const row = {
            offset,
            stream,
            at: at?.toISOString() ?? null,
            content: Buffer.from(content).toString("base64")
          }
          offset += content.length
          return row
        })
        return sql`
          lines as (
            insert into deployment_log (org_id, deployment_uid, position, stream, at, content)
            select ${ref.orgId}::uuid, ${ref.uid}::uuid, m.log_position + l."offset", l.stream,
              coalesce(l.at, clock_timestamp()), decode(l.content, 'base64')
            from moved m, jsonb_to_recordset(${sql.json(rows)}::jsonb)
              as l("offset" bigint, stream text, at timestamptz, content text)
          )`
      }
      /** With what moves it past the fetching of its image: the registry's password is needed no more. */
      const forgotten = (ref: DeploymentRef, isOver: boolean) => sql`
        forgotten as (
          delete from secret where ${one(ref)} and field = 'imagePullCredentials'
            and ${isOver}::boolean and exists (select from moved)
        )`
      const bytesOf = (lines: ReadonlyArray<{ readonly content: Uint8Array }>) =>
        lines.reduce((sum, { content }) => sum + content.length, 0)
      const system = (line: string) => ({ stream: "system", content: Buffer.from(`${storableText(line)}\n`) })

      return Deployments.of({
        find: Effect.fn("Deployments.find")(function* ({ orgId, uid }) {
          // Index: deployment_newest.
          const [row] = yield* repeatable(sql<DeploymentRow>`
            select d.uid, d.environment_uid as "environmentUid", d.created_at as "createdAt", d.state,
              extract(epoch from now() - d.state_at)::float8 * 1000 as "stateAgeMs", d.error_code as "errorCode",
              d.error, d.image_id as "imageId", d.image_digest as "imageDigest", d.image_gone as "imageGone",
              exists (select from deployment n where n.org_id = d.org_id and n.environment_uid = d.environment_uid
                and (n.created_at, n.uid) > (d.created_at, d.uid)
                and n.state not in ('failed', 'cancelled', 'superseded')) as overtaken
            from deployment d where d.org_id = ${orgId}::uuid and d.uid = ${uid}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        begin: ({ orgId, uid, fence }) =>
          changed(
            repeatable(sql`
              insert into deployment (org_id, uid, environment_uid, fence, created_at)
              select r.org_id, r.uid, r.parent_uid, ${fence}, r.created_at from resource r
              where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.parent_uid is not null
              on conflict (org_id, uid) do update set fence = excluded.fence where deployment.fence <= excluded.fence
              returning uid`)
          ),
        claim: (ref) =>
          changed(
            repeatable(sql`update deployment set fence = ${ref.fence} where ${fenced(ref)} returning uid`)
          ),
        moveTo: (ref, from, to, line, image) => {
          const lines = [system(line)]
          return changed(
            repeatable(sql`
              with moved as (
                update deployment set state = ${to}, state_at = now(),
                  image_id = coalesce(${image?.id ?? null}::text, image_id),
                  image_digest = coalesce(${image?.digest ?? null}::text, image_digest),
                  ready_at = case when ${to} = 'ready' then now() else ready_at end,
                  finished_at = case when ${to} = 'ready' then now() end,
                  log_position = log_position + ${bytesOf(lines)}::bigint
                where ${fenced(ref)} and state in (select jsonb_array_elements_text(${sql.json(from)}))
                returning uid, log_position - ${bytesOf(lines)}::bigint as log_position
              ), ${logged(ref, lines)}, ${forgotten(ref, image !== undefined)}
              select uid from moved`)
          )
        },
        print: Effect.fn("Deployments.print")(function* (ref, from, pieces) {
          const bytes = bytesOf(pieces)
          const [row] = yield* repeatable(sql<{ readonly position: number }>`
            with moved as (
              update deployment set log_position = log_position + ${bytes}::bigint
              where ${one(ref)} and state = 'building'
                and (${from ?? null}::bigint is null or log_position = ${from ?? null}::bigint)
              returning log_position - ${bytes}::bigint as log_position
            ), ${logged(ref, pieces)}
            select (log_position + ${bytes}::bigint)::float8 as position from moved`)
          return row?.position
        }),
        building: Effect.fn("Deployments.building")(function* (refs) {
          const given = refs.map(({ orgId, uid }) => ({ orgId, uid }))
          const rows = yield* repeatable(sql<{ readonly uid: string }>`
            select d.uid from jsonb_to_recordset(${sql.json(given)}::jsonb) as g("orgId" uuid, uid uuid)
            join deployment d on d.org_id = g."orgId" and d.uid = g.uid
            where d.state = 'building'`)
          return new Set(rows.map(({ uid }) => uid))
        }),
        wantingUploads: Effect.fn("Deployments.wantingUploads")(function* (refs) {
          // Other names than of uploads may stand in the folder.
          const given = refs
            .filter(({ orgId }) => isUuid.test(orgId))
            .map(({ orgId, digest }) => ({ orgId, digest }))
          // Index: deployment_listing, for each organization.
          const rows = yield* repeatable(sql<{ readonly key: string }>`
            select distinct g."orgId" || '/' || g.digest as key
            from jsonb_to_recordset(${sql.json(given)}::jsonb) as g("orgId" uuid, digest text)
            join resource r on r.org_id = g."orgId" and r.kind = 'Deployment' and r.deleted_at is null
              and r.spec->'source'->>'digest' = g.digest
            left join deployment d on d.org_id = r.org_id and d.uid = r.uid
            where d.finished_at is null and d.image_id is null`)
          return new Set(rows.map(({ key }) => key))
        }),
        end: (ref, { state, errorCode, error, printed }) => {
          const told = error === null ? null : storableText(error, 2_000)
          const lines = [...printed, system(told ?? `It is ${state}`)]
          const tail = storableText(Buffer.concat(printed.map(({ content }) => content)).toString(), 4_000)
          const announced = emission(
            sql,
            {
              orgId: ref.orgId,
              projectId: ref.projectId,
              type: "deploy.failed",
              data: sql`(select jsonb_build_object('deploymentId', m.uid, 'environment', m.environment,
                'errorCode', ${errorCode}::text, 'error', ${told}::text, 'log', ${tail}::text) from moved m)`
            },
            sql`${state === "failed"}::boolean and exists (select from moved)`
          )
          return changed(
            repeatable(sql`
              with moved as (
                update deployment d set state = ${state}, state_at = now(), finished_at = now(),
                  error_code = ${errorCode}::text, error = ${told}::text,
                  log_position = log_position + ${bytesOf(lines)}::bigint
                where ${fenced(ref)} and finished_at is null
                returning uid, log_position - ${bytesOf(lines)}::bigint as log_position,
                  (select environment from resource r where r.org_id = d.org_id and r.uid = d.uid) as environment
              ), ${logged(ref, lines)}, ${forgotten(ref, true)}, ${announced}
              select uid from moved`)
          )
        },
        forget: (ref) => changed(repeatable(sql`delete from deployment where ${fenced(ref)} returning uid`)),
        wakeReconciler: (ref) => wakeReconciler(sql, ref),
        wantingImage: Effect.fn("Deployments.wantingImage")(function* (refs) {
          const given = refs.map(({ orgId, uid }) => ({ orgId, uid }))
          const rows = yield* repeatable(sql<{ readonly uid: string }>`
            select d.uid from jsonb_to_recordset(${sql.json(given)}::jsonb) as g("orgId" uuid, uid uuid)
            join deployment d on d.org_id = g."orgId" and d.uid = g.uid
            where d.finished_at is null and d.image_id is null`)
          return new Set(rows.map(({ uid }) => uid))
        }),
        get: Effect.fn("Deployments.get")(function* (orgId, uid) {
          const [row] = yield* repeatable(api<DeploymentRecord>`
            select ${columns(api)} from ${source(api)}
            where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.kind = 'Deployment' and r.deleted_at is null
              and ${inOrg(api, orgId)}`)
          return Option.fromUndefinedOr(row)
        }),
        // Index: deployment_listing.
        list: Effect.fn("Deployments.list")(function* (orgId, { projectId, environment = null }, limit) {
          return yield* repeatable(api<DeploymentRecord>`
            select ${columns(api)} from ${source(api)}
            where r.org_id = ${orgId}::uuid and r.project_id = ${projectId}::uuid and r.kind = 'Deployment'
              and (${environment}::text is null or r.environment = ${environment}::text)
              and r.deleted_at is null and ${inOrg(api, orgId)}
            order by r.created_at desc, r.uid desc limit ${limit}::int`)
        }),
        before: Effect.fn("Deployments.before")(function* (orgId, environmentUid) {
          const gate = inOrg(api, orgId)
          const [row] = yield* repeatable(api<{ readonly uid: string }>`
            select d.uid from app a
            join deployment c on c.org_id = a.org_id and c.uid = a.serving_deployment
            join deployment d on d.org_id = a.org_id and d.environment_uid = a.environment_uid and d.state = 'ready'
              and not d.image_gone and (d.created_at, d.uid) < (c.created_at, c.uid)
            where a.org_id = ${orgId}::uuid and a.environment_uid = ${environmentUid}::uuid and ${gate}
            order by d.created_at desc, d.uid desc limit 1`)
          return row?.uid
        }),
        now: Effect.flatMap(
          repeatable(api<{ readonly now: Date }>`select date_trunc('milliseconds', now()) as now`),
          ([row]) =>
            row === undefined
              ? Effect.die(new Error("The store did not tell the time"))
              : Effect.succeed(row.now)
        ),
        // Index: the primary key.
        log: Effect.fn("Deployments.log")(function* ({ orgId, uid }, from, limit) {
          const gate = inOrg(api, orgId)
          const [state] = yield* repeatable(api<{ readonly ended: boolean }>`
            select finished_at is not null as ended from deployment
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid and ${gate}`)
          const pieces = yield* repeatable(api<LogRecord>`
            select l.position::text as position, l.stream, l.at, l.content from deployment_log l
            where org_id = ${orgId}::uuid and deployment_uid = ${uid}::uuid and position >= ${from}::bigint and ${gate}
            order by l.position limit ${limit}::int`)
          return { pieces, ended: state?.ended === true && pieces.length < limit }
        }),
        keptImages: Effect.map(
          repeatable(sql<{ readonly id: string }>`select distinct image_id as id from (${kept(sql)}) k`),
          (rows) => rows.map(({ id }) => id)
        ),
        looseImages: Effect.map(
          // Index: deployment_image.
          repeatable(sql<{ readonly id: string }>`
            select image_id as id from deployment where image_id is not null and not image_gone
            group by image_id having image_id not in (select image_id from (${kept(sql)}) k) limit 50`),
          (rows) => rows.map(({ id }) => id)
        ),
        imageReleased: (imageId) =>
          changed(
            repeatable(sql`
              update deployment set image_gone = true
              where image_id = ${imageId} and not image_gone
                and not exists (select from (${kept(sql)}) k where k.image_id = ${imageId})
              returning uid`)
          )
      })
    })
  )
}

/** Rows with the `image_id` of each deployment that is on its way, answers, or may be chosen again. */
const kept = (sql: Sql): Fragment => sql`
  select d.image_id from (
    select d.image_id, d.state, d.finished_at, row_number() over (
      partition by d.org_id, d.environment_uid, d.state
      order by coalesce(d.uid = a.serving_deployment, false) desc, d.ready_at desc) as place
    from deployment d
    left join app a on a.org_id = d.org_id and a.environment_uid = d.environment_uid
    where d.image_id is not null and not d.image_gone
  ) d
  where d.finished_at is null or (d.state = 'ready' and d.place <= ${keptReady + 1}::int)`

const source = (sql: Sql): Fragment => sql`
  resource r
  left join deployment d on d.org_id = r.org_id and d.uid = r.uid
  left join app a on a.org_id = r.org_id and a.environment_uid = r.parent_uid`

const columns = (sql: Sql): Fragment => sql`
  r.uid as id, r.environment, r.spec, coalesce(d.state, 'queued') as state, d.error_code as "errorCode", d.error,
  d.image_digest as "imageDigest", coalesce(d.image_gone, false) as "imageGone",
  coalesce(a.serving_deployment = r.uid, false) as active, r.created_at as "createdAt",
  d.ready_at as "readyAt", d.finished_at as "finishedAt"`
