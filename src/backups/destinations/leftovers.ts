/**
 * Uploads that a process left unfinished when it was killed: nobody sees them, and they take room. Only what lies
 * below the destination's own prefix and is named as our objects are is given up; without a prefix nothing is, for
 * the bucket may be anybody's.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { DestinationConfig, Opened } from "./connection.ts"
import { faultOf } from "./faults.ts"

/** A test looks at so many; the next test goes on. */
const perPage = 200
const mostPages = 5
const patience = "30 seconds"
const ours = /^(svc-access-test\/[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\/(base|wal)\/.+)$/

/** A server that cannot list uploads, or does not let us, keeps what it has: no failure of the destination. */
export const giveUpLeftovers = (
  { bucket, prefix }: Pick<DestinationConfig, "bucket" | "prefix">,
  { client, sdk }: Opened,
  olderThanMs: number
): Effect.Effect<void> =>
  Effect.gen(function* () {
    if (prefix === "") return
    const before = (yield* Clock.currentTimeMillis) - olderThanMs
    let after: { readonly KeyMarker?: string; readonly UploadIdMarker?: string } = {}
    for (let page = 0; page < mostPages; page++) {
      const asked = { Bucket: bucket, Prefix: `${prefix}/`, MaxUploads: perPage, ...after }
      const found = yield* Effect.tryPromise({
        try: (abortSignal) => client.send(new sdk.ListMultipartUploadsCommand(asked), { abortSignal }),
        catch: faultOf("read", "the list of uploads")
      })
      for (const { Key = "", UploadId, Initiated } of found.Uploads ?? []) {
        if (UploadId === undefined || Initiated === undefined || Initiated.getTime() > before) continue
        if (!Key.startsWith(`${prefix}/`) || !ours.test(Key.slice(prefix.length + 1))) continue
        yield* Effect.ignore(
          Effect.tryPromise({
            try: (abortSignal) =>
              client.send(new sdk.AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }), {
                abortSignal
              }),
            catch: faultOf("delete", Key)
          })
        )
      }
      if (found.IsTruncated !== true || found.NextKeyMarker === undefined) return
      after = {
        KeyMarker: found.NextKeyMarker,
        ...(found.NextUploadIdMarker === undefined ? {} : { UploadIdMarker: found.NextUploadIdMarker })
      }
    }
  }).pipe(Effect.timeout(patience), Effect.ignore, Effect.withSpan("giveUpLeftovers"))
