/** What is known of each git source, and who asked for a look. Reconciles change it under their fencing number. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { GitSource, GitSourceStatus } from "#schemas/git-source.ts"
import { storableJson } from "#src/storable.ts"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import { dueNow } from "#src/store/work-rows.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

interface Ref {
  readonly orgId: string
  readonly uid: string
}
interface Fenced extends Ref {
  readonly fence: bigint
}

export interface SourceRow {
  /** Undefined: there was no look yet, or another release stored what this one cannot read. */
  readonly status: GitSourceStatus | undefined
  /** Of the resource, at the last look. */
  readonly generation: number
  readonly asked: bigint
  readonly answered: bigint
}

/** False: a later reconcile was here, and nothing was done. */
type Change = Effect.Effect<boolean, StoreUnavailable>

export class GitSources extends Context.Service<
  GitSources,
  {
    readonly find: (ref: Ref) => Effect.Effect<Option.Option<SourceRow>, StoreUnavailable>
    readonly claim: (ref: Fenced) => Change
    /** What a look came to; it answers what had been `asked` for when it began. */
    readonly keep: (ref: Fenced & Pick<SourceRow, "generation" | "asked">, status: GitSourceStatus) => Change
    readonly remove: (ref: Fenced) => Change
    /** Has the source looked at now. */
    readonly ask: (ref: Ref) => Effect.Effect<void, StoreUnavailable>
    /** Has all sources of the organization that are kept from this repository looked at now; `repo` is owner and name. */
    readonly changed: (orgId: string, repo: string) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/git-sources/GitSources") {
  static readonly layer = Layer.effect(
    GitSources,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const one = ({ orgId, uid }: Ref) => sql`org_id = ${orgId}::uuid and uid = ${uid}::uuid`
      const done = Effect.map((rows: ReadonlyArray<unknown>) => rows.length > 0)
      return GitSources.of({
        find: Effect.fn("GitSources.find")(function* (ref) {
          const [row] = yield* repeatable(sql<Omit<SourceRow, "status"> & { readonly state: unknown }>`
            select state, generation, asked, answered from git_source where ${one(ref)}`)
          if (row === undefined) return Option.none()
          const { state, ...rest } = row
          return Option.some({ ...rest, status: Option.getOrUndefined(decode(state)) })
        }),
        claim: ({ orgId, uid, fence }) =>
          done(
            repeatable(sql`
              insert into git_source as s (org_id, uid, fence) values (${orgId}::uuid, ${uid}::uuid, ${fence})
              on conflict (org_id, uid) do update set fence = excluded.fence where s.fence <= excluded.fence
              returning uid`)
          ),
        keep: ({ generation, asked, fence, ...ref }, status) =>
          done(
            repeatable(sql`
              update git_source set fence = ${fence}, state = ${sql.json(storableJson(status))}::jsonb,
                generation = ${generation}::int, answered = ${asked}
              where ${one(ref)} and fence <= ${fence} returning uid`)
          ),
        remove: ({ fence, ...ref }) =>
          Effect.map(
            repeatable(sql<{ readonly newer: boolean }>`
              with gone as (delete from git_source where ${one(ref)} and fence <= ${fence})
              select exists (select from git_source where ${one(ref)} and fence > ${fence}) as newer`),
            ([row]) => row?.newer === false
          ),
        ask: ({ orgId, uid }) =>
          Effect.asVoid(
            repeatable(api`
              with asked as (
                insert into git_source as s (org_id, uid, asked)
                select r.org_id, r.uid, 1 from resource r
                where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.deleted_at is null
                  and ${inOrg(api, orgId)}
                on conflict (org_id, uid) do update set asked = s.asked + 1
                returning s.org_id, s.uid
              ), woken as (
                update work w set ${dueNow(api)} from asked a
                where w.org_id = a.org_id and w.uid = a.uid and ${inOrg(api, orgId)}
                returning w.uid
              )
              select pg_notify('svc_work', '') from woken`)
          ),
        // Index: resource_by_place.
        changed: (orgId, repo) =>
          Effect.asVoid(
            repeatable(sql`
              with asked as (
                update git_source s set asked = s.asked + 1 from resource r
                where s.org_id = ${orgId}::uuid and r.org_id = s.org_id and r.uid = s.uid
                  and r.kind = ${GitSource.name}
                  and lower(r.spec->>'url') ~ ${repositoryPattern(repo)}::text
                  and r.deletion_requested_at is null
                returning s.org_id, s.uid
              ), woken as (
                update work w set ${dueNow(sql)} from asked a
                where w.org_id = a.org_id and w.uid = a.uid
                returning w.uid
              )
              select pg_notify('svc_work', '') from woken`)
          )
      })
    })
  )
}

const decode = Schema.decodeUnknownOption(GitSourceStatus)

/** Addresses of the repository at whatever forge: a look more than is needed costs little. */
const repositoryPattern = (repo: string): string =>
  `^https://[^/]+/${repo.toLowerCase().replaceAll(/[^a-z0-9/-]/g, (char) => `\\${char}`)}([.]git)?/?$`
