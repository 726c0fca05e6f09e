/**
 * The change feed: every resource as it is after each of its changes, in an order that never loses a late commit.
 *
 * A revision alone would not do: a transaction may take revision 5, another take 6 and commit first, and a reader
 * at 6 would never see 5. So the order is by writing transaction and then revision, and a reader goes only as far
 * as the oldest transaction that still runs: everything before it is final. (PostgreSQL documentation, "Transaction
 * ID and Snapshot Information Functions": pg_snapshot_xmin.)
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as RcRef from "effect/RcRef"
import * as Stream from "effect/Stream"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Db, inOrg, repeatable } from "./Db.ts"
import { columns, type Row, source, toRecord } from "./Resources.ts"
import type { ResourceRecord } from "./records.ts"

export interface Change {
  readonly cursor: string
  /** Whether it is the last word on this resource: it is gone. */
  readonly deleted: boolean
  readonly record: ResourceRecord
}

const pageSize = 500
/** Safety net for a lost notification. */
const idlePoll = "2 seconds"

export class Feed extends Context.Service<
  Feed,
  {
    /**
     * Everything after `after`, and then every change as it commits. Without `after` it starts with every living
     * resource. The stream does not end; it fails when the store cannot be reached.
     */
    readonly follow: (orgId: string, after?: string) => Stream.Stream<Change, StoreUnavailable>
    /** Where the feed ends just now: after it come only changes that are not final yet. */
    readonly head: Effect.Effect<string, StoreUnavailable>
    /** One page of the feed. */
    readonly page: (orgId: string, after?: string) => Effect.Effect<ReadonlyArray<Change>, StoreUnavailable>
  }
>()("svc/store/Feed") {
  static readonly layer = Layer.effect(
    Feed,
    Effect.gen(function* () {
      const { api: sql, notifications } = yield* Db
      // One subscription for all who follow, and none while nobody does: hearing of a change takes a twentieth of the time
      // of making it. What is heard is passed on as the organization, or undefined for "anything".
      const shared = yield* RcRef.make({
        acquire: Effect.gen(function* () {
          const heard = yield* PubSub.sliding<string | undefined>(1024)
          yield* Effect.forkScoped(
            Stream.runForEach(notifications("svc_change"), (orgId) => PubSub.publish(heard, orgId))
          )
          return heard
        }),
        idleTimeToLive: "10 seconds"
      })

      const page = Effect.fn("Feed.page")(function* (orgId: string, after?: string) {
        const [txid, revision] = parseCursor(after)
        // Index: resource_feed.
        const rows = yield* repeatable(sql<Row & { readonly txid: string; readonly deleted: boolean }>`
          select ${columns(sql)}, r.txid::text as txid, r.deleted_at is not null as deleted
          from ${source(sql)}
          where r.org_id = ${orgId}::uuid and ${inOrg(sql, orgId)}
            and (r.txid, r.revision) > (${txid}::xid8, ${revision}::bigint)
            and r.txid < pg_snapshot_xmin(pg_current_snapshot())
            and (${after ?? null}::text is not null or r.deleted_at is null)
          order by r.txid, r.revision limit ${pageSize}::int`)
        return rows.map(
          ({ txid, deleted, ...row }): Change => ({
            cursor: `${txid}-${row.revision}`,
            deleted,
            record: toRecord(row)
          })
        )
      })

      return Feed.of({
        page,
        head: Effect.map(
          repeatable(sql<{ readonly txid: string }>`
            select pg_snapshot_xmin(pg_current_snapshot())::text as txid`),
          ([row]) => `${row?.txid ?? "0"}-0`
        ),
        follow: (orgId, after) =>
          Stream.unwrap(
            Effect.gen(function* () {
              const wake = yield* PubSub.subscribe(yield* RcRef.get(shared))
              let cursor = after
              const forOrg = Effect.repeat(PubSub.take(wake), {
                until: (orgHeard) => orgHeard === undefined || orgHeard === orgId
              })
              return Stream.fromEffectRepeat(
                Effect.gen(function* () {
                  for (;;) {
                    const changes = yield* page(orgId, cursor)
                    const last = changes.at(-1)
                    if (last !== undefined) {
                      cursor = last.cursor
                      return changes
                    }
                    // From here on deletions count, even when nothing was there to begin with.
                    cursor ??= "0-0"
                    yield* Effect.timeoutOption(forOrg, idlePoll)
                  }
                })
              ).pipe(Stream.flatMap(Stream.fromIterable))
            })
          ).pipe(Stream.scoped)
      })
    })
  )
}

/** Whether text has the form of a cursor. What it points at need not exist any more. */
export const isCursor = (text: string): boolean => /^\d{1,20}-\d{1,19}$/.test(text)

const parseCursor = (cursor: string | undefined): readonly [string, string] => {
  const [txid, revision] = (cursor ?? "0-0").split("-")
  return [txid ?? "0", revision ?? "0"]
}
