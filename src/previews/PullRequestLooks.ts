/**
 * Whose turn it is to have the pull requests of its repository looked at: one row for each project that has a repository, and
 * for each repository that only git sources are kept from.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type ProjectLook, projectLooks } from "#src/git/project-looks.ts"
import type { Room } from "#src/loops/leased.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** The commit of each open pull request that has or had a preview, by its number. */
export type Previewed = Readonly<Record<string, string>>

export interface PullRequestLook extends ProjectLook {
  /** Empty: the project has none any more, and previews that followed one. */
  readonly repo: string
  readonly previewed: Previewed
  /** Pull requests that were opened again since the last look, as the forge has told. */
  readonly reopened: ReadonlyArray<number>
  /** False: it is of a git source, and has no previews. */
  readonly isProject: boolean
}

/** Previews stay so long without a connection: one may be made anew. */
export const graceSeconds = 3_600
export const channel = "svc_pull_requests"

/** Of those opened again that wait for a look, the last ones told. */
const mostReopened = 100

export class PullRequestLooks extends Context.Service<
  PullRequestLooks,
  {
    /**
     * Something became of a pull request of the repository: it is looked at, and again if somebody does at this moment.
     * `reopened`: the number of one that was opened again.
     */
    readonly told: (orgId: string, repo: string, reopened?: number) => Effect.Effect<void, StoreUnavailable>
    /** Brings the list to what projects say. */
    readonly sync: Effect.Effect<void, StoreUnavailable>
    readonly claim: (
      room: Room<PullRequestLook>
    ) => Effect.Effect<ReadonlyArray<PullRequestLook>, StoreUnavailable>
    /**
     * These have a preview, or had one that somebody closed or whose time was over. That others were opened again is
     * done with.
     */
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
      const { held, claim, settle, giveBack, nextIn } = projectLooks<PullRequestLook>(
        sql,
        "pull_request_look",
        sql`l.repo, l.previewed, l.reopened, exists (select from resource p
          where p.org_id = l.org_id and p.uid = l.project_uid and p.kind = 'Project') as "isProject"`
      )
      return PullRequestLooks.of({
        // Index: pull_request_look_repo.
        told: (orgId, repo, reopened) =>
          Effect.asVoid(
            repeatable(sql`
              with told as (
                update pull_request_look set told_at = clock_timestamp(),
                  reopened = case when ${reopened ?? null}::int is null or ${reopened ?? null}::int = any(reopened)
                    then reopened
                    else (reopened || ${reopened ?? null}::int)[greatest(1, cardinality(reopened) + 2 - ${mostReopened}::int):] end,
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
            ), kept as (
              select distinct on (s.org_id, repo) s.org_id, s.uid, repo
              from git_source g join resource s on s.org_id = g.org_id and s.uid = g.uid
              join git_connection c on c.org_id = s.org_id and c.id::text = s.spec->>'connection',
              lateral (select regexp_replace(substr(lower(s.spec->>'url'), length(c.url) + 2), '([.]git)?/?$', '') as repo) r
              where s.kind = 'GitSource' and s.deletion_requested_at is null
                and starts_with(lower(s.spec->>'url'), lower(c.url) || '/') and split_part(repo, '/', 1) = c.owner
              order by s.org_id, repo, s.uid
            ), listed as (
              select * from wanted union all
              select * from kept k where not exists (
                select from wanted w where w.org_id = k.org_id and w.repo = k.repo)
            ), gone as (
              delete from pull_request_look l where not exists (
                select from listed w where w.org_id = l.org_id and w.uid = l.project_uid)
            )
            insert into pull_request_look as l (org_id, project_uid, repo)
            select w.org_id, w.uid, w.repo from listed w
            left join pull_request_look known
              on known.org_id = w.org_id and known.project_uid = w.uid and known.repo = w.repo
            -- A conflict locks the row, and nearly all are as they should be.
            where known.org_id is null
            on conflict (org_id, project_uid) do update set repo = excluded.repo, lease_token = null,
              previewed = '{}', reopened = '{}', due_at = now(), failures = 0, error = null
            where l.repo <> excluded.repo`)
        ),
        claim,
        remember: (look, previewed) =>
          Effect.asVoid(
            repeatable(sql`
              update pull_request_look set previewed = ${sql.json(previewed)},
                -- What is told of meanwhile waits for the next look.
                reopened = array(select unnest(reopened) except select unnest(${[...look.reopened]}::int[]))
              where ${held(look)}`)
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
        settle: (look, error, nextInSeconds) => settle(look, error, nextInSeconds),
        giveBack,
        nextIn
      })
    })
  )
}
