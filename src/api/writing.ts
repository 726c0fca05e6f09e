/** What handlers that change something have in common: preconditions, changes on top of what is there, deletion. */
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import { completeSpec } from "#schemas/complete-spec.ts"
import { findKind } from "#schemas/index.ts"
import type { Json } from "#schemas/kind.ts"
import { kindInWords } from "#schemas/kind.ts"
import type { SecretValues } from "#src/store/change.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "#src/store/errors.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { RequestScope } from "./definition/scope.ts"
import { fromStore, notFound, problem } from "./problem.ts"
import { etagOf } from "./views.ts"

/** Failures of a write, as problems. */
export const stored = <A, R>(
  write: Effect.Effect<A, NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable, R>
) => Effect.mapError(write, fromStore)

export const mismatch = problem(
  412,
  "revision_mismatch",
  "It changed since it was read; read it again and repeat the change"
)

/**
 * `If-Match` (RFC 9110, section 13.1.1): the change was made for a state that must still be there. Undefined stands
 * for something that does not exist, which no condition matches. The answer says what the write has to expect.
 */
export const precondition = Effect.fnUntraced(function* (
  record: Pick<ResourceRecord, "revision"> | undefined
) {
  const { ifMatch } = yield* RequestScope
  if (ifMatch === undefined) return {}
  if (record === undefined) return yield* mismatch
  if (ifMatch.trim() === "*") return {}
  if (
    !ifMatch
      .split(",")
      .map((tag) => tag.trim())
      .includes(etagOf(record))
  )
    return yield* mismatch
  return { expectedRevision: record.revision }
})

/** What an earlier try of this request created, which was not answered. */
export const createdBefore = Effect.gen(function* () {
  const { orgId, reservation } = yield* RequestScope
  if (!reservation.again) return undefined
  const resources = yield* Resources
  return Option.getOrUndefined(yield* Effect.mapError(resources.get(orgId, reservation.uid), fromStore))
})

/** A write that somebody else was faster than: what the caller said it must find is not there. */
const orMismatch = <A, E extends { readonly _tag: string }, R>(self: Effect.Effect<A, E, R>) =>
  Effect.flatMap(RequestScope, ({ ifMatch }) =>
    Effect.mapError(self, (error) =>
      error._tag === "RevisionConflict" && ifMatch !== undefined ? mismatch : error
    )
  )

/** How often a change is made anew on top of what somebody else stored meanwhile. */
const attempts = 5

/**
 * Changes the specification of what the gate found. It builds on the generation it read, so that of two changes at
 * once none is lost; reports of the engine, which leave the generation alone, do not disturb it.
 */
export const amend = Effect.fnUntraced(function* <E, R>(
  found: ResourceRecord,
  change: (record: ResourceRecord) => Effect.Effect<
    {
      readonly spec: Json
      readonly name?: string
      readonly secrets?: SecretValues
      readonly managedBy?: "api" | "manifest"
    },
    E,
    R
  >
) {
  const resources = yield* Resources
  const { orgId, caller } = yield* RequestScope
  const read = Effect.flatMap(Effect.mapError(resources.get(orgId, found.uid), fromStore), (record) =>
    Option.isSome(record) ? Effect.succeed(record.value) : Effect.fail(notFound(kindInWords(found.kind)))
  )
  let base = found
  for (let attempt = 1; ; attempt++) {
    const expected = yield* precondition(base)
    const wanted = yield* change(base)
    const update = {
      action: "update",
      uid: base.uid,
      expectedGeneration: base.generation,
      ...expected,
      ...wanted,
      spec: asStored(base, wanted.spec)
    } as const
    const written = yield* orMismatch(resources.write(orgId, [update], caller.actor)).pipe(
      Effect.as(true),
      Effect.catchTag("RevisionConflict", (conflict) =>
        attempt < attempts ? Effect.succeed(false) : Effect.fail(conflict)
      ),
      Effect.mapError((error) => (error._tag === "Problem" ? error : fromStore(error)))
    )
    base = yield* read
    if (written) return base
  }
})

/** A default that came after it was stored is no change: what means the same is left as it is. */
const asStored = ({ kind, spec }: ResourceRecord, wanted: Json): Json => {
  const known = findKind(kind)
  const same =
    known !== undefined && isDeepStrictEqual(Result.getOrUndefined(completeSpec(known, spec)), wanted)
  return same ? spec : wanted
}

/** Asks for deletion. It answers when that is stored; the resource goes when the real thing is seen to be gone. */
export const remove = Effect.fnUntraced(function* (record: ResourceRecord) {
  const resources = yield* Resources
  const { orgId, caller } = yield* RequestScope
  const expected = yield* precondition(record)
  yield* orMismatch(
    resources.write(orgId, [{ action: "delete", uid: record.uid, ...expected }], caller.actor)
  ).pipe(Effect.mapError((error) => (error._tag === "Problem" ? error : fromStore(error))))
  return { ok: true as const }
})
