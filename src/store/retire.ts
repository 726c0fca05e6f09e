/** Deletion of what is kept for a while only: records of things that ended. */
import * as Effect from "effect/Effect"
import { Resources } from "./Resources.ts"
import type { Actor } from "./records.ts"

export interface Retired {
  readonly orgId: string
  readonly uid: string
}

/** Asks for deletion; the reconcilers remove what is left. `operation` is told in history and audit. Answers how many. */
export const retire = Effect.fn("store.retire")(function* (old: ReadonlyArray<Retired>, operation: string) {
  const resources = yield* Resources
  const actor: Actor = {
    principal: "system",
    credential: "none",
    operation,
    requestId: operation,
    address: null,
    outcome: 200
  }
  for (const { orgId, uid } of old) {
    // Somebody else was faster, or protects it: so be it.
    yield* Effect.catchTags(resources.write(orgId, [{ action: "delete", uid }], actor), {
      NotFound: () => Effect.void,
      Refused: () => Effect.void,
      RevisionConflict: () => Effect.void
    })
  }
  return old.length
})
