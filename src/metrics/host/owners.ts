/** To which organizations the resources belong whose servers are here. That never changes, so it is asked once. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { answered } from "#src/engine/answered.ts"
import { Db, repeatable } from "#src/store/Db.ts"

/** Folders may stay for a while without a resource. */
const askAgainMs = 60_000

export const makeOwners = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const owners = new Map<string, string>()
  const unknown = new Map<string, number>()

  return Effect.fnUntraced(function* (uids: ReadonlySet<string>) {
    const now = yield* Clock.currentTimeMillis
    for (const known of [owners, unknown])
      for (const uid of known.keys()) if (!uids.has(uid)) known.delete(uid)
    const asked = [...uids].filter(
      (uid) => !owners.has(uid) && now - (unknown.get(uid) ?? Number.NEGATIVE_INFINITY) >= askAgainMs
    )
    if (asked.length === 0) return owners
    // Without an index: it is rare, and the organization is what is looked for.
    const rows = yield* answered("tell whose servers these are")(
      repeatable(sql<{ uid: string; orgId: string }>`
      select uid, org_id as "orgId" from resource
      where uid in (select jsonb_array_elements_text(${sql.json(asked)}::jsonb)::uuid) and deleted_at is null`)
    )
    for (const uid of asked) unknown.set(uid, now)
    for (const { uid, orgId } of rows) {
      owners.set(uid, orgId)
      unknown.delete(uid)
    }
    return owners
  })
})
