/**
 * The production branches of projects whose repositories a connection opens, and what was told of them: whose turn it is to
 * be looked at, and which commit was seen last. A look ends with the lease that it began with, or counts for nothing, so
 * that of two the later one decides.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Room } from "#src/loops/leased.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { ForgeEvent } from "./forge-events.ts"
import { type ProjectLook, projectLooks } from "./project-looks.ts"

export interface BranchLook extends ProjectLook {
  readonly repo: string
  /** Id of the connection that it was listed for; null: none is known. */
  readonly connection: string | null
  /** Null: the branch that counts where none is named. */
  readonly ref: string | null
  /** Seen last. */
  readonly commit: string | null
  /** Of a deployment that was to be made of it and may not be there. */
  readonly deployment: string | null
}

export class GitBranches extends Context.Service<
  GitBranches,
  {
    /**
     * Keeps what a forge told, once, and has the branches looked at that it is about. `gone`: there is no such connection any
     * more.
     */
    readonly tell: (
      orgId: string,
      connectionId: string,
      event: ForgeEvent
    ) => Effect.Effect<"new" | "known" | "gone", StoreUnavailable>
    /** Brings the list to what projects and connections say. */
    readonly sync: Effect.Effect<void, StoreUnavailable>
    readonly claim: (room: Room<BranchLook>) => Effect.Effect<ReadonlyArray<BranchLook>, StoreUnavailable>
    /** This commit is the newest. Answers the id that its deployment is to have; undefined: the lease has ended. */
    readonly seen: (look: BranchLook, commit: string) => Effect.Effect<string | undefined, StoreUnavailable>
    /** It was looked at, and nothing is left to do. */
    readonly settle: (
      look: BranchLook,
      result: {
        /** Kept as seen though nothing is made of it. */
        readonly commit?: string | undefined
        readonly error: string | undefined
        readonly nextInSeconds: number
      }
    ) => Effect.Effect<void, StoreUnavailable>
    readonly giveBack: (looks: ReadonlyArray<BranchLook>) => Effect.Effect<void, StoreUnavailable>
    /** Milliseconds until the first is due, or its lease ends. */
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
  }
>()("svc/git/GitBranches") {
  static readonly layer = Layer.effect(
    GitBranches,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { held, claim, settle, giveBack, nextIn } = projectLooks<BranchLook>(
        sql,
        "git_branch",
        sql`l.repo, l.connection_id as connection, nullif(l.branch, '') as ref, l.commit_id as commit,
          l.deployment_uid as deployment`
      )

      return GitBranches.of({
        tell: Effect.fn("GitBranches.tell")(function* (orgId, connectionId, told) {
          const { deliveryId, event, repo, branch, pullRequest } = told
          const [row] = yield* repeatable(sql<{ readonly alive: boolean; readonly fresh: boolean }>`
            with c as (
              select org_id, id, owner from git_connection
              where org_id = ${orgId}::uuid and id = ${connectionId}::uuid for key share
            ), d as (
              insert into git_delivery (org_id, connection_id, delivery_id, event, repo, branch, pull_request)
              select org_id, id, ${deliveryId}::text, ${event}::text, ${repo}::text, ${branch}::text, ${pullRequest}::int
              from c
              on conflict do nothing returning 1
            ), told as (
              -- Index: git_branch_repo. While somebody looks, they look again afterwards.
              update git_branch b set told_at = clock_timestamp(),
                due_at = case when lease_token is null then least(due_at, now()) else due_at end
              from c where ${event === "push"}::boolean and exists (select from d)
                and b.org_id = c.org_id and b.repo = ${repo}::text and split_part(b.repo, '/', 1) = c.owner
                and (b.branch = '' or b.branch = ${branch}::text)
            )
            select exists (select from c) as alive, exists (select from d) as fresh`)
          if (row?.alive !== true) return "gone"
          return row.fresh ? "new" : "known"
        }),
        sync: Effect.asVoid(
          repeatable(sql`
            with wanted as (
              select r.org_id, r.uid, c.id as connection, lower(r.spec->'git'->>'repo') as repo, coalesce(r.spec->'git'->>'ref', '') as branch
              from git_connection c
              -- Index: resource_with_repository. Who does not pay makes no deployments, by requests or by pushes.
              join organization o on o.id = c.org_id and o.billing_status = 'active'
              join resource r on r.org_id = c.org_id and r.kind = 'Project' and r.deletion_requested_at is null
                and r.spec->'git'->>'repo' is not null
                and split_part(lower(r.spec->'git'->>'repo'), '/', 1) = c.owner
            ), gone as (
              delete from git_branch b where not exists (
                select from wanted w where w.org_id = b.org_id and w.uid = b.project_uid)
            )
            insert into git_branch as b (org_id, project_uid, connection_id, repo, branch)
            select w.org_id, w.uid, w.connection, w.repo, w.branch
            from wanted w left join git_branch known on known.org_id = w.org_id and known.project_uid = w.uid
              and (known.connection_id, known.repo, known.branch) = (w.connection, w.repo, w.branch)
            -- A conflict locks the row, and nearly all are as they should be.
            where known.org_id is null
            on conflict (org_id, project_uid) do update set connection_id = excluded.connection_id,
              repo = excluded.repo, branch = excluded.branch,
              commit_id = null, deployment_uid = null, lease_token = null, due_at = now(), failures = 0, error = null
            where (b.connection_id, b.repo, b.branch)
              is distinct from (excluded.connection_id, excluded.repo, excluded.branch)`)
        ),
        claim,
        seen: Effect.fn("GitBranches.seen")(function* (look, commit) {
          const uid = randomUUIDv7()
          const rows = yield* repeatable(sql<{ readonly uid: string }>`
            update git_branch set commit_id = ${commit}::text,
              deployment_uid = case when commit_id = ${commit}::text then coalesce(deployment_uid, ${uid}::uuid)
                else ${uid}::uuid end
            where ${held(look)} returning deployment_uid as uid`)
          return rows[0]?.uid
        }),
        settle: (look, { commit, error, nextInSeconds }) =>
          settle(
            look,
            error,
            nextInSeconds,
            // What failed is done with the same id.
            sql`commit_id = coalesce(${commit ?? null}::text, commit_id),
              deployment_uid = case when ${error === undefined}::boolean then null else deployment_uid end,`
          ),
        giveBack,
        nextIn
      })
    })
  )
}
