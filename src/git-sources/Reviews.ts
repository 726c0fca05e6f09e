/**
 * What pull requests have shown of what merging them makes a git source do. A look at pull requests keeps what it has shown,
 * and says what was merged; the source's look decides whether that is what it does now; and the next look at pull requests
 * tells of it, and forgets it.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Fragment } from "effect/sql/Statement"
import { GitSource, type GitSourceSpec } from "#schemas/git-source.ts"
import type { ProjectLook } from "#src/git/project-looks.ts"
import { storableText } from "#src/storable.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface ShownPlan {
  readonly sourceId: string
  readonly pullRequest: number
  readonly commit: string
  /** Null: there was no plan to show. */
  readonly digest: string | null
  /** Digests of what it does, by address; not of all where these are very many. */
  readonly parts: Readonly<Record<string, string>>
}

export interface Review extends ShownPlan {
  /** Milliseconds since it was seen that it is merged; null: it is not. */
  readonly mergedMs: number | null
  readonly outcome: "applied" | "not_applied" | null
  readonly message: string | null
  /** Of a fork: the commit that somebody let be planned. */
  readonly approvedCommit: string | null
}

export interface Decision {
  readonly pullRequest: number
  readonly outcome: "applied" | "not_applied"
  readonly message: string
}

export interface SourceOfRepository {
  readonly uid: string
  readonly name: string
  readonly spec: GitSourceSpec
}

interface Ref {
  readonly orgId: string
  readonly uid: string
}
interface Look extends ProjectLook {
  readonly repo: string
}

/** Reviews of one source that are looked at; those of the newest pull requests. */
const most = 100
/** Addresses of a plan whose digests are kept: they only say what differs. */
const mostParts = 500

export class Reviews extends Context.Service<
  Reviews,
  {
    /**
     * The sources that are kept by this connection, whatever their repositories. Of several looks at one repository those of
     * one only have them.
     */
    readonly sources: (
      look: Look,
      connectionId: string
    ) => Effect.Effect<ReadonlyArray<SourceOfRepository>, StoreUnavailable>
    readonly of: (
      orgId: string,
      sourceIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<Review>, StoreUnavailable>
    /**
     * The pull request is about to show this. Whether that is what it shows already; else what it showed counts no more,
     * so that nothing is applied under a comment that says something else.
     */
    readonly showing: (look: Look, plan: ShownPlan) => Effect.Effect<boolean, StoreUnavailable>
    /** The pull request shows this now. */
    readonly shown: (look: Look, plan: ShownPlan) => Effect.Effect<void, StoreUnavailable>
    /** Its pull request is merged. */
    readonly merged: (look: Look, review: ShownPlan) => Effect.Effect<void, StoreUnavailable>
    readonly forget: (look: Look, review: ShownPlan) => Effect.Effect<void, StoreUnavailable>
    /** Lets this commit of a fork be planned by the source, and has the pull requests looked at. */
    readonly approve: (
      source: Ref & { readonly url: string },
      pull: Pick<ShownPlan, "pullRequest" | "commit">,
      actor: Actor
    ) => Effect.Effect<void, StoreUnavailable>
    /** Of a source: those of which nothing was decided yet. */
    readonly undecided: (source: Ref) => Effect.Effect<ReadonlyArray<Review>, StoreUnavailable>
    /** Keeps decisions, and has the pull requests looked at. False: a later reconcile was here, and nothing was done. */
    readonly decide: (
      source: Ref & { readonly fence: bigint; readonly url: string },
      decisions: ReadonlyArray<Decision>
    ) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/git-sources/Reviews") {
  static readonly layer = Layer.effect(
    Reviews,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const columns =
        sql.literal(`source_uid as "sourceId", pull_request as "pullRequest", commit_id as commit, digest,
        parts, (extract(epoch from clock_timestamp() - merged_at) * 1000)::float8 as "mergedMs", outcome, message,
        approved_commit as "approvedCommit"`)
      /** A look whose lease has ended changes nothing. */
      const held = ({ orgId, projectId, lease }: Look) => sql`exists (
        select from pull_request_look l
        where l.org_id = ${orgId}::uuid and l.project_uid = ${projectId}::uuid and l.lease_token = ${lease})`
      const one = ({ orgId }: Look, { sourceId, pullRequest }: ShownPlan) => sql`
        org_id = ${orgId}::uuid and source_uid = ${sourceId}::uuid and pull_request = ${pullRequest}::int`

      return Reviews.of({
        sources: Effect.fn("Reviews.sources")(function* ({ orgId, projectId, repo }, connectionId) {
          const rows = yield* repeatable(sql<Omit<SourceOfRepository, "spec"> & { readonly spec: unknown }>`
            select s.uid, s.name, s.spec from git_source g
            join resource s on s.org_id = g.org_id and s.uid = g.uid
            where g.org_id = ${orgId}::uuid and s.kind = ${GitSource.name} and s.deletion_requested_at is null
              and s.spec->>'connection' = ${connectionId}::text
              -- Index: pull_request_look_repo.
              and not exists (select from pull_request_look o
                where o.org_id = g.org_id and o.repo = ${repo}::text and o.project_uid < ${projectId}::uuid)
            order by s.name limit ${most}::int`)
          return rows.flatMap(({ uid, name, spec }) =>
            Option.match(decode(spec), { onNone: () => [], onSome: (known) => [{ uid, name, spec: known }] })
          )
        }),
        of: (orgId, sourceIds) =>
          sourceIds.length === 0
            ? Effect.succeed([])
            : repeatable(sql<Review>`
                select ${columns} from git_source_review
                where org_id = ${orgId}::uuid and source_uid = any(${[...sourceIds]}::uuid[])
                order by pull_request desc`),
        showing: (look, plan) =>
          Effect.map(
            repeatable(sql`
              with other as (
                update git_source_review set digest = null
                where ${one(look, plan)} and digest is distinct from ${plan.digest}::text and ${held(look)}
                returning 1
              )
              select from git_source_review where ${one(look, plan)} and digest is not distinct from ${plan.digest}::text
                and commit_id = ${plan.commit}::text and not exists (select from other)`),
            (rows) => rows.length > 0
          ),
        shown: (look, plan) => {
          const { commit, digest, sourceId, pullRequest } = plan
          const parts = Object.fromEntries(Object.entries(plan.parts).slice(0, mostParts))
          return Effect.asVoid(
            repeatable(sql`
              insert into git_source_review as r (org_id, source_uid, pull_request, commit_id, digest, parts)
              select ${look.orgId}::uuid, ${sourceId}::uuid, ${pullRequest}::int, ${commit}::text, ${digest}::text,
                ${sql.json(parts)}::jsonb
              where ${held(look)} and exists (
                select from git_source g where g.org_id = ${look.orgId}::uuid and g.uid = ${sourceId}::uuid)
              on conflict (org_id, source_uid, pull_request) do update set commit_id = excluded.commit_id,
                digest = excluded.digest, parts = excluded.parts, merged_at = null, outcome = null, message = null
              where (r.commit_id, r.digest, r.merged_at, r.outcome)
                is distinct from (excluded.commit_id, excluded.digest, null::timestamptz, null::text)`)
          )
        },
        merged: (look, review) =>
          Effect.asVoid(
            repeatable(sql`
              update git_source_review set merged_at = clock_timestamp()
              where ${one(look, review)} and merged_at is null and ${held(look)}`)
          ),
        forget: (look, review) =>
          Effect.asVoid(
            repeatable(sql`delete from git_source_review where ${one(look, review)} and ${held(look)}`)
          ),
        approve: ({ orgId, uid, url }, { pullRequest, commit }, actor) =>
          Effect.asVoid(
            repeatable(sql`
              with source as (
                -- There is a row once it was looked at.
                insert into git_source as s (org_id, uid)
                select r.org_id, r.uid from resource r
                where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.deleted_at is null
                on conflict (org_id, uid) do update set asked = s.asked
                returning s.org_id, s.uid
              ), approved as (
                insert into git_source_review as v (org_id, source_uid, pull_request, commit_id, approved_commit)
                select org_id, uid, ${pullRequest}::int, ${commit}::text, ${commit}::text from source
                on conflict (org_id, source_uid, pull_request) do update set approved_commit = excluded.approved_commit
                returning v.source_uid || ' #' || v.pull_request || ' ' || v.approved_commit as id
              ), told as (
                ${lookNow(sql, orgId, sql`${url}::text`)} returning pg_notify('svc_pull_requests', '')
              ), audited as (${auditOf(sql, orgId, actor, "approved")})
              select count(*) from told`)
          ),
        undecided: ({ orgId, uid }) =>
          repeatable(sql<Review>`
            select ${columns} from git_source_review
            where org_id = ${orgId}::uuid and source_uid = ${uid}::uuid and outcome is null
            order by pull_request desc limit ${most}::int`),
        decide: ({ orgId, uid, fence, url }, decisions) => {
          const said = decisions.map(({ pullRequest, outcome, message }) => ({
            pull_request: pullRequest,
            outcome,
            message: storableText(message, 2_000)
          }))
          return Effect.map(
            repeatable(sql<{ readonly holds: boolean }>`
              with mine as (
                select from git_source where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}
              ), decided as (
                update git_source_review r set outcome = d.outcome, message = d.message
                from jsonb_to_recordset(${sql.json(said)}::jsonb) as d(pull_request int, outcome text, message text)
                where r.org_id = ${orgId}::uuid and r.source_uid = ${uid}::uuid
                  and r.pull_request = d.pull_request and r.outcome is null and exists (select from mine)
                returning 1
              ), told as (
                ${lookNow(sql, orgId, sql`${url}::text`)} and exists (select from decided)
                returning pg_notify('svc_pull_requests', '')
              )
              select exists (select from mine) as holds, (select count(*) from told) as told`),
            ([row]) => row?.holds === true
          )
        }
      })
    })
  )
}

const decode = Schema.decodeUnknownOption(GitSource.spec)

/** An update that has the pull requests of the repository at this address looked at, and again if somebody does at this moment. */
const lookNow = (sql: Sql, orgId: string, url: Fragment): Fragment => sql`
  update pull_request_look l set told_at = clock_timestamp(),
    due_at = case when lease_token is null then least(due_at, now()) else due_at end
  where l.org_id = ${orgId}::uuid and l.repo <> ''
    and right(regexp_replace(lower(${url}), '([.]git)?/?$', ''), length(l.repo) + 1) = '/' || l.repo`
