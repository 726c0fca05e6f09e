/** Sealing objects into a place, and opening them from whichever place has them. */
import { randomBytes } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { codeOf } from "#src/infra/error-code.ts"
import { systemFault } from "../error-messages.ts"
import type { NewObject } from "../Ledger.ts"
import { counting, decode, encode, NotAuthentic } from "./envelope.ts"
import { type Place, PlaceError } from "./Place.ts"

/** The place where an object is, by its name; a name of its own for each writing, so that none replaces another's. */
const newKey = (lineage: string, name: string) => `${lineage}/${name}-${randomBytes(6).toString("hex")}`

const readFailed = (cause: unknown): PlaceError => {
  if (cause instanceof PlaceError) return cause
  const message =
    cause instanceof NotAuthentic
      ? cause.message
      : `A file here cannot be read or written: ${systemFault(cause)}`
  return new PlaceError({ reason: codeOf(cause) === "ENOSPC" ? "no_space" : "read", message, cause })
}

/** Seals the content into the place and answers the row that makes it an object. */
export const putSealed = Effect.fnUntraced(function* (
  place: Place,
  lineageKey: Uint8Array,
  lineage: string,
  object: { readonly name: string; readonly backupId: string | null; readonly finishedAt: Date | null },
  content: () => AsyncIterable<Uint8Array>
) {
  const [plain, stored] = [counting(), counting()]
  const key = newKey(lineage, object.name)
  yield* place.put(
    key,
    Stream.suspend(() =>
      Stream.fromAsyncIterable(
        encode(lineageKey, { lineage, name: object.name }, content(), { plain, stored }),
        readFailed
      ).pipe(Stream.flattenArray)
    )
  )
  const [was, is] = [plain.tally(), stored.tally()]
  const made: NewObject = {
    ...object,
    key,
    plainBytes: was.bytes,
    plainSha256: was.sha256,
    storedBytes: is.bytes,
    storedSha256: is.sha256
  }
  return made
})

/** Opens an object from a place into `use`, which is whole only if this succeeds. */
export const openSealed = Effect.fnUntraced(function* (
  place: Place,
  key: string,
  lineageKey: Uint8Array,
  lineage: string,
  object: Pick<NewObject, "name" | "plainSha256">,
  use: (content: AsyncIterable<Uint8Array>) => Promise<void>
) {
  const plain = counting()
  const stored = Stream.toAsyncIterable(place.get(key))
  yield* Effect.tryPromise({
    try: async () => {
      await use(decode(lineageKey, { lineage, name: object.name }, stored, { plain }))
      if (plain.tally().sha256 !== object.plainSha256) {
        throw new NotAuthentic(`${object.name} is not what was kept under that name`)
      }
    },
    catch: readFailed
  })
})
