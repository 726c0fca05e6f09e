/**
 * Whose turn it is to be looked at, in a table of one row for each project: claimed fairly, ended with the lease that it
 * began with or for nothing, and due at once if something was told of it meanwhile.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import type { Room } from "#src/loops/leased.ts"
import { storableText } from "#src/storable.ts"
import { repeatable, type Sql } from "#src/store/Db.ts"

/** Longer than a look takes. */
export const leaseSeconds = 180

export interface ProjectLook {
  readonly orgId: string
  readonly projectId: string
  readonly failures: number
  readonly lease: bigint
}

/** `columns`: what a look has besides, of the table's rows by the name `l`. */
export const projectLooks = <Look extends ProjectLook>(
  sql: Sql,
  name: "git_branch" | "pull_request_look",
  columns: Fragment
) => {
  const table = sql(name)
  const held = ({ orgId, projectId, lease }: ProjectLook) => sql`
    org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and lease_token = ${lease}`
  return {
    held,
    // Index: git_branch_due, pull_request_look_due. Organizations without room are left out before the first ones are taken.
    claim: ({ most, orgs }: Room<Look>) => {
      const rooms = Object.fromEntries([...orgs.holders].map(([org, { room }]) => [org, room]))
      const roomOf = sql`coalesce((${sql.json(rooms)}::jsonb ->> org_id::text)::int, ${orgs.others}::int)`
      return repeatable(sql<Look>`
        with due as materialized (
          select org_id, project_uid, due_at, ${roomOf} as room from ${table}
          where due_at <= now() and ${roomOf} > 0
          order by due_at limit ${most * 4}::int for update skip locked
        ), chosen as (
          select org_id, project_uid from (
            select d.*, row_number() over (partition by org_id order by due_at) as nth from due d) d
          where nth <= room order by due_at limit ${most}::int
        )
        update ${table} l set lease_token = nextval('lease_token'), claimed_at = clock_timestamp(),
          due_at = now() + make_interval(secs => ${leaseSeconds}::int)
        from chosen c where l.org_id = c.org_id and l.project_uid = c.project_uid
        returning l.org_id as "orgId", l.project_uid as "projectId", l.failures, l.lease_token as lease, ${columns}`)
    },
    /** `also`: other columns that are set, each followed by a comma. */
    settle: (look: Look, error: string | undefined, nextInSeconds: number, also: Fragment = sql``) =>
      Effect.asVoid(
        repeatable(sql`
          update ${table} set ${also} lease_token = null,
            failures = case when ${error === undefined}::boolean then 0 else failures + 1 end,
            error = ${error === undefined ? null : storableText(error, 1_000)}::text,
            due_at = case when told_at > claimed_at then now()
              else now() + make_interval(secs => ${nextInSeconds}::float8) end
          where ${held(look)}`)
      ),
    giveBack: (looks: ReadonlyArray<Look>) =>
      Effect.forEach(
        looks,
        (look) => repeatable(sql`update ${table} set lease_token = null, due_at = now() where ${held(look)}`),
        { discard: true }
      ),
    nextIn: Effect.map(
      repeatable(sql<{ readonly next: number | null }>`
        select extract(epoch from min(due_at) - now())::float8 * 1000 as next from ${table}`),
      ([row]) => row?.next ?? undefined
    )
  }
}
