/**
 * Tells calls that go on for long when their right ends: a key or a token was revoked, or the gateway deleted. Every
 * change in an organization is announced on the channel `svc_change`, and its callers are looked at again then, and all of
 * them now and then, for an announcement that was lost.
 */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import { answered } from "#src/engine/answered.ts"
import { Db, repeatable } from "#src/store/Db.ts"

/** Why a call may not go on. */
export type Ended = "credential" | "gateway"

export interface Watchable {
  readonly orgId: string
  readonly gateway: { readonly uid: string } | undefined
  /** Null: the credential is the token of an app. */
  readonly keyId: string | null
  readonly credentialId: string
}

interface Watched {
  readonly caller: Watchable
  readonly tell: (why: Ended) => void
}

/** Callers that one statement looks at. */
const batch = 1_000
/** Between two looks: an organization in which much goes on announces much. */
const rest = "250 millis"
/** Safety net for a lost announcement. */
const lookAtAll = "10 seconds"
const longestLookMs = 5_000

/** The loop ends with the scope. What it answers takes whom to tell, perhaps more than once, until what that answers is called. */
export const watchCallers = Effect.fnUntraced(function* () {
  const { engine: sql, notifications } = yield* Db
  const watched = new Set<Watched>()
  /** Organizations in which something changed; undefined: all. */
  const changed = new Set<string | undefined>()
  const woken = yield* Queue.sliding<void>(1)

  const look = Effect.fnUntraced(function* () {
    const orgs = new Set(changed)
    changed.clear()
    const due = [...watched].filter(({ caller }) => orgs.has(undefined) || orgs.has(caller.orgId))
    for (let from = 0; from < due.length; from += batch) {
      const some = due.slice(from, from + batch)
      const asked = some.map(({ caller }, ord) => ({
        ord,
        org_id: caller.orgId,
        gateway: caller.gateway?.uid ?? null,
        credential: caller.credentialId,
        is_key: caller.keyId !== null
      }))
      const rows = yield* repeatable(sql<{ readonly ord: number; readonly ended: Ended }>`
        select ord, ended from (
          select q.ord, case
            when not exists (select from resource g where g.org_id = q.org_id and g.uid = q.gateway
              and g.deletion_requested_at is null and g.deleted_at is null) then 'gateway'
            when case when q.is_key
              then not exists (select from ai_gateway_key k
                where k.org_id = q.org_id and k.id = q.credential and k.revoked_at is null)
              else not exists (select from app_service_token t
                where t.org_id = q.org_id and t.id = q.credential and (t.expires_at is null or t.expires_at > now()))
              end then 'credential' end as ended
          from jsonb_to_recordset(${sql.json(asked)}::jsonb)
            as q(ord int, org_id uuid, gateway uuid, credential uuid, is_key boolean)) looked
        where ended is not null`)
      for (const { ord, ended } of rows) {
        const one = some[ord]
        if (one !== undefined && watched.has(one)) one.tell(ended)
      }
    }
  })

  yield* Effect.forkScoped(
    Stream.runForEach(notifications("svc_change"), (orgId) =>
      Effect.suspend(() => {
        if (watched.size === 0) return Effect.void
        changed.add(orgId)
        return Queue.offer(woken, undefined)
      })
    )
  )
  yield* Effect.forkScoped(
    Effect.forever(
      Effect.gen(function* () {
        const woke = yield* Effect.timeoutOption(Queue.take(woken), lookAtAll)
        if (woke._tag === "None") changed.add(undefined)
        yield* answered(
          "look at callers again",
          longestLookMs
        )(look()).pipe(
          Effect.catch((error) => {
            changed.add(undefined)
            return Effect.logWarning("could not look at running calls; trying again", error)
          })
        )
        yield* Effect.sleep(rest)
      })
    )
  )

  return (caller: Watchable, tell: (why: Ended) => void): (() => void) => {
    const one: Watched = { caller, tell }
    watched.add(one)
    // It may have ended since it was asked, before it was watched.
    changed.add(caller.orgId)
    Queue.offerUnsafe(woken, undefined)
    return () => {
      watched.delete(one)
    }
  }
})
