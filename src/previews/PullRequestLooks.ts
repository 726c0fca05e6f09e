/** Whose turn it is to have the pull requests of its repository looked at: one row for each project that has a repository. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Room } from "#src/loops/leased.ts"
import { storableText } from "#src/storable.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** The commit of each open pull request that has or had a preview, by its number. */
export type Previewed = Readonly<Record<string, string>>

export interface PullRequestLook {
  readonly orgId: string
  readonly projectId: string
  /** Empty: the project has none any more, and previews that followed one. */
  readonly repo: string
  readonly previewed: Previewed
  readonly failures: number
  readonly lease: bigint
}

/** Longer than a look takes. */
export const leaseSeconds = 180
/** Previews stay so long without a connection: one may be made anew. */
export const graceSeconds = 3_600
export const channel = "svc_pull_requests"

export class PullRequestLooks extends Context.Service<
  PullRequestLooks,
  {
    /** Something became of a pull request of the repository: it is looked at, and again if somebody does at this moment. */
    readonly told: (orgId: string, repo: string) => Effect.Effect<void, StoreUnavailable>
    /** Brings the list to what projects say. */
    readonly sync: Effect.Effect<void, StoreUnavailable>
    readonly claim: (
      room: Room<PullRequestLook>
    ) => Effect.Effect<ReadonlyArray<PullRequestLook>, StoreUnavailable>
    /** These have a preview, or had one that somebody closed or whose time was over. */
    readonly remember: (look: PullRequestLook, previewed: Previewed) => Effect.Effect<void, StoreUnavailable>
    /** Whether a connection opens the repository now. Answers whether none has for longer than previews are kept. */
    readonly connected: (
      look: PullRequestLook,
      isConnected: boolean
    ) => Effect.Effect<boolean, StoreUnavailable>
    readonly settle: (
      look: PullRequestLook,
      error: string | undefined,
      nextInSeconds: number
    ) => Effect.Effect<void, StoreUnavailable>
    readonly giveBack: (looks: ReadonlyArray<PullRequestLook>) => Effect.Effect<void, StoreUnavailable>
    /** Milliseconds until the first is due, or its lease ends. */
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
  }
>()("svc/previews/PullRequestLooks") {
  static readonly layer = Layer.effect(
    PullRequestLooks,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const held = ({ orgId, projectId, lease }: PullRequestLook) => sql`
        org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and lease_token = ${lease}`
      return PullRequestLooks.of({
        // Index: pull_request_look_repo.
        told: (orgId, repo) =>
          Effect.asVoid(
            repeatable(sql`
              with told as (
                update pull_request_look set told_at = clock_timestamp(),
                  due_at = case when lease_token is null then least(due_at, now()) else due_at end
                where org_id = ${orgId}::uuid and repo = lower(${repo}::text) returning 1
              )
              select pg_notify(${channel}, '') from told limit 1`)
          ),
        // Index: resource_with_repository.
        sync: Effect.asVoid(
          repeatable(sql`
            with wanted as (
              select p.org_id, p.uid, coalesce(lower(p.spec->'git'->>'repo'), '') as repo from resource p
              where p.kind = 'Project' and p.deletion_requested_at is null
                and (p.spec->'git'->>'repo' is not null or (
                  exists (select from pull_request_look l where l.org_id = p.org_id and l.project_uid = p.uid)
                  -- Index: resource_by_place.
                  and exists (select from resource v where v.org_id = p.org_id and v.kind = 'Preview'
                    and v.project_id = p.uid and v.deleted_at is null and v.spec->'followed' = 'true')))
            ), gone as (
              delete from pull_request_look l where not exists (
                select from wanted w where w.org_id = l.org_id and w.uid = l.project_uid)
            )
            insert into pull_request_look as l (org_id, project_uid, repo)
            select w.org_id, w.uid, w.repo from wanted w
            left join pull_request_look known
              on known.org_id = w.org_id and known.project_uid = w.uid and known.repo = w.repo
            -- A conflict locks the row, and nearly all are as they should be.
            where known.org_id is null
            on conflict (org_id, project_uid) do update set repo = excluded.repo, lease_token = null,
              previewed = '{}', due_at = now(), failures = 0, error = null
            where l.repo <> excluded.repo`)
        ),
        // Index: pull_request_look_due.
        claim: Effect.fnUntraced(function* ({ most, orgs }) {
          const rooms = Object.fromEntries([...orgs.holders].map(([org, { room }]) => [org, room]))
          return yield* repeatable(sql<PullRequestLook>`
            with due as materialized (
              select org_id, project_uid, due_at from pull_request_look where due_at <= now()
              order by due_at limit ${most * 4}::int for update skip locked
            ), chosen as (
              select org_id, project_uid from (
                select due.*, row_number() over (partition by org_id order by due_at) as nth,
                  coalesce((${sql.json(rooms)}::jsonb ->> org_id::text)::int, ${orgs.others}::int) as room
                from due) ranked
              where nth <= room order by due_at limit ${most}::int
            )
            update pull_request_look l set lease_token = nextval('lease_token'), claimed_at = clock_timestamp(),
              due_at = now() + make_interval(secs => ${leaseSeconds}::int)
            from chosen c where l.org_id = c.org_id and l.project_uid = c.project_uid
            returning l.org_id as "orgId", l.project_uid as "projectId", l.repo, l.previewed, l.failures, l.lease_token as lease`)
        }),
        remember: (look, previewed) =>
          Effect.asVoid(
            repeatable(
              sql`update pull_request_look set previewed = ${sql.json(previewed)} where ${held(look)}`
            )
          ),
        connected: (look, isConnected) =>
          Effect.map(
            repeatable(sql<{ readonly over: boolean | null }>`
              update pull_request_look set
                unconnected_since = case when ${isConnected}::boolean then null
                  else coalesce(unconnected_since, now()) end
              where ${held(look)}
              returning unconnected_since < now() - make_interval(secs => ${graceSeconds}::int) as over`),
            ([row]) => row?.over === true
          ),
        settle: (look, error, nextInSeconds) =>
          Effect.asVoid(
            repeatable(sql`
              update pull_request_look set lease_token = null,
                failures = case when ${error === undefined}::boolean then 0 else failures + 1 end,
                error = ${error === undefined ? null : storableText(error, 1_000)}::text,
                due_at = case when told_at > claimed_at then now()
                  else now() + make_interval(secs => ${nextInSeconds}::float8) end
              where ${held(look)}`)
          ),
        giveBack: (looks) =>
          Effect.forEach(
            looks,
            (look) =>
              repeatable(
                sql`update pull_request_look set lease_token = null, due_at = now() where ${held(look)}`
              ),
            { discard: true }
          ),
        nextIn: Effect.map(
          repeatable(sql<{ readonly next: number | null }>`
            select extract(epoch from min(due_at) - now())::float8 * 1000 as next from pull_request_look`),
          ([row]) => row?.next ?? undefined
        )
      })
    })
  )
}
