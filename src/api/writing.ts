/** What handlers that change something have in common. */
import * as Effect from "effect/Effect"
import type { NameTaken, NotFound, Refused, RevisionConflict, StoreUnavailable } from "#src/store/errors.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { RequestScope } from "./definition/scope.ts"
import { fromStore, problem } from "./problem.ts"
import { etagOf } from "./views.ts"

/** Failures of a write, as problems. */
export const stored = <A, R>(
  write: Effect.Effect<A, NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable, R>
) => Effect.mapError(write, fromStore)

/** `If-Match` (RFC 9110, section 13.1.1): the change was made for a state that must still be there. */
export const checkIfMatch = (header: string | undefined, record: ResourceRecord) => {
  if (header === undefined || header.trim() === "*") return Effect.void
  const tags = header.split(",").map((tag) => tag.trim())
  return tags.includes(etagOf(record))
    ? Effect.void
    : Effect.fail(
        problem(412, "revision_mismatch", "It changed since it was read; read it again and repeat the change")
      )
}

/** Asks for deletion. It answers when that is stored; the resource goes when the real thing is seen to be gone. */
export const remove = Effect.fnUntraced(function* (record: ResourceRecord, ifMatch: string | undefined) {
  const resources = yield* Resources
  const { orgId, caller } = yield* RequestScope
  yield* checkIfMatch(ifMatch, record)
  const expected = ifMatch === undefined ? {} : { expectedRevision: record.revision }
  yield* stored(resources.write(orgId, [{ action: "delete", uid: record.uid, ...expected }], caller.actor))
  return { ok: true as const }
})
