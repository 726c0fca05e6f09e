/**
 * Whether a destination can be used: an object of random content is written, listed, read back, compared and deleted,
 * once in one request and once in parts. The first thing that goes wrong is told.
 */
import { randomBytes } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Stream from "effect/Stream"
import { type Place, PlaceError } from "../repository/Place.ts"
import { tookTooLong } from "./faults.ts"

/** Seconds for all of it. */
const patience = 45
const contentBytes = 1024
const folder = "svc-access-test"

export const checkAccess = (whole: Place, inParts: Place): Effect.Effect<void, PlaceError> =>
  Effect.gen(function* () {
    yield* probe(whole)
    yield* probe(inParts)
  }).pipe(
    Effect.timeoutOrElse({
      duration: patience * 1000,
      orElse: () => Effect.fail(tookTooLong("read", "and write test objects", patience))
    }),
    Effect.withSpan("checkAccess")
  )

const probe = (place: Place) => {
  const key = `${folder}/${randomBytes(16).toString("hex")}`
  const content = randomBytes(contentBytes)
  return Effect.acquireUseRelease(
    Effect.sync(() => ({ written: false, gone: false })),
    (state) =>
      Effect.gen(function* () {
        // From here on there may be one, whatever the answer is.
        state.written = true
        yield* place.put(key, Stream.make(content))
        // Nothing of what is there decides how much of it is read.
        let size = 0
        const chunks = yield* place.get(key).pipe(
          Stream.takeUntil((chunk) => {
            size += chunk.length
            return size > contentBytes
          }),
          Stream.runCollect
        )
        if (!Buffer.concat(chunks).equals(content)) {
          const message = "Cannot read test objects: what was read is not what was written"
          return yield* new PlaceError({ reason: "read", message })
        }
        const listed = yield* Stream.runCollect(Stream.take(place.list(key), 1))
        if (listed[0]?.key !== key) {
          const message = "Cannot list objects: the test object that was written is not in the list"
          return yield* new PlaceError({ reason: "read", message })
        }
        yield* Effect.mapError(place.remove([key]), left(key))
        state.gone = true
        const found = yield* Effect.exit(Stream.runDrain(Stream.take(place.get(key), 1)))
        if (Exit.isSuccess(found)) {
          const message = "it is still there after it was deleted"
          return yield* left(key)(new PlaceError({ reason: "delete", message }))
        }
      }),
    ({ written, gone }) =>
      written && !gone ? Effect.ignore(Effect.timeout(place.remove([key]), "10 seconds")) : Effect.void
  )
}

/** Whoever reads it can delete it by hand. */
const left = (key: string) => (error: PlaceError) =>
  new PlaceError({
    reason: error.reason,
    message: `The test object ${key} could not be deleted and is left there. ${error.message}`
  })
