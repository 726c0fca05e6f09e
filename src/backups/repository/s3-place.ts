/**
 * A bucket somewhere, or a part of one: whatever speaks S3.
 *
 * What is larger than one part is sent in parts, a few at a time, so that memory stays flat; an object appears when
 * its last part has come, and one that is given up half-way leaves nothing that can be seen. Reading goes on where a
 * connection broke.
 */
import { Readable } from "node:stream"
import type { CompletedPart, GetObjectCommandOutput } from "@aws-sdk/client-s3"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { DestinationConfig, Opened } from "../destinations/connection.ts"
import { type Doing, faultOf, tookTooLong } from "../destinations/faults.ts"
import { type Place, PlaceError } from "./Place.ts"

/** All parts but the last are of one size, which some servers ask for; 10,000 of them is the most. */
const partSize = 8 << 20
const mostParts = 10_000
const partsAtOnce = 2
const removalsAtOnce = 8
/** Seconds for a request with all its tries. */
const patience = 120
const transferPatience = 900
/** Times that reading goes on after a broken connection without a single byte in between. */
const resumptions = 3

type Send = <A>(
  doing: Doing,
  what: string,
  run: (options: { readonly abortSignal: AbortSignal }) => Promise<A>,
  seconds?: number
) => Effect.Effect<A, PlaceError>

export interface PlaceOptions {
  /** Even what would fit into one request is sent as parts: to see whether that works. */
  readonly alwaysInParts?: boolean
  /** Seconds for a request with all its tries. */
  readonly patience?: number
}

export const s3Place = (
  id: string,
  { bucket, prefix }: Pick<DestinationConfig, "bucket" | "prefix">,
  { client, sdk }: Opened,
  options: PlaceOptions = {}
): Place => {
  const root = prefix === "" ? "" : `${prefix}/`
  const at = (key: string) => ({ Bucket: bucket, Key: `${root}${key}` })

  const send: Send = (doing, what, run, seconds = options.patience ?? patience) =>
    Effect.timeoutOrElse(
      Effect.tryPromise({
        try: (abortSignal) => run({ abortSignal }),
        catch: faultOf(doing, what)
      }),
      { duration: seconds * 1000, orElse: () => Effect.fail(tookTooLong(doing, what, seconds)) }
    )

  const putWhole = (key: string, body: Uint8Array) =>
    send("write", key, (how) =>
      client.send(new sdk.PutObjectCommand({ ...at(key), Body: body, ContentLength: body.length }), how)
    )

  /** Sending in parts: begun when the first one is there, given up unless it is completed. */
  const inParts = (key: string) =>
    Effect.acquireRelease(
      Effect.sync((): { upload?: Upload; completed: boolean } => ({ completed: false })),
      ({ upload, completed }) =>
        upload === undefined || completed
          ? Effect.void
          : Effect.ignore(
              send(
                "delete",
                key,
                (how) => client.send(new sdk.AbortMultipartUploadCommand(upload), how),
                Math.min(20, options.patience ?? 20)
              ).pipe(Effect.retry({ times: 2 }))
            )
    ).pipe(
      Effect.flatMap((state) =>
        Effect.map(
          Effect.cached(
            Effect.gen(function* () {
              const create = new sdk.CreateMultipartUploadCommand(at(key))
              const { UploadId } = yield* send("write", key, (how) => client.send(create, how))
              if (UploadId === undefined) return yield* Effect.fail(faultOf("write", key)(undefined))
              const upload = { ...at(key), UploadId }
              state.upload = upload
              return upload
            })
          ),
          (begin) => ({ state, begin })
        )
      )
    )

  const putPart = Effect.fnUntraced(function* (key: string, upload: Upload, index: number, body: Uint8Array) {
    const PartNumber = index + 1
    if (PartNumber > mostParts) {
      const message = `Cannot write ${key}: it is larger than ${(mostParts * partSize) >> 20} MB`
      return yield* new PlaceError({ reason: "write", message })
    }
    const part = { ...upload, PartNumber, Body: body, ContentLength: body.length }
    const { ETag } = yield* send(
      "write",
      key,
      (how) => client.send(new sdk.UploadPartCommand(part), how),
      options.patience ?? transferPatience
    )
    return { PartNumber, ...(ETag === undefined ? {} : { ETag }) } satisfies CompletedPart
  })

  const put: Place["put"] = (key, content) =>
    Effect.gen(function* () {
      const { state, begin } = yield* inParts(key)
      let bytes = 0
      const parts = yield* inPieces(content).pipe(
        Stream.zipWithIndex,
        Stream.mapEffect(
          Effect.fnUntraced(function* ([{ body, last }, index]: readonly [Piece, number]) {
            bytes += body.length
            // What is complete in one piece needs no parts.
            if (index > 0 || !last || options.alwaysInParts === true) {
              return yield* putPart(key, yield* begin, index, body)
            }
            yield* putWhole(key, body)
            return undefined
          }),
          { concurrency: partsAtOnce }
        ),
        Stream.runCollect
      )
      const { upload } = state
      if (upload !== undefined) {
        const Parts = parts.flatMap((part) => (part === undefined ? [] : [part]))
        const complete = new sdk.CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts } })
        yield* send("write", key, (how) => client.send(complete, how), options.patience ?? transferPatience)
        state.completed = true
      }
      return { bytes }
    }).pipe(Effect.scoped, Effect.withSpan("s3Place.put"))

  /** The object from `offset` on. The tag says that it is still the same object. */
  const open = (key: string, offset: number, tag: string | undefined) =>
    send("read", key, (how) =>
      client.send(
        new sdk.GetObjectCommand({
          ...at(key),
          ...(offset === 0 ? {} : { Range: `bytes=${offset}-` }),
          ...(tag === undefined ? {} : { IfMatch: tag })
        }),
        how
      )
    )

  const readFrom = (
    key: string,
    offset: number,
    tag: string | undefined,
    triesLeft: number
  ): Stream.Stream<Uint8Array, PlaceError> =>
    Stream.suspend(() => {
      let read = offset
      let known = tag
      return Stream.unwrap(
        Effect.map(open(key, offset, tag), (answer) => {
          known = answer.ETag ?? tag
          return bodyOf(key, answer)
        })
      ).pipe(
        Stream.tap((chunk) =>
          Effect.sync(() => {
            read += chunk.length
          })
        ),
        Stream.catch((error) => {
          const goesOn = error.reason === "unreachable" || error.reason === "timeout"
          const left = read > offset ? resumptions : triesLeft - 1
          return goesOn && left > 0 && known !== undefined
            ? readFrom(key, read, known, left)
            : Stream.fail(error)
        })
      )
    })

  const list: Place["list"] = (sought) =>
    Stream.paginate(
      undefined,
      Effect.fnUntraced(function* (token: string | undefined) {
        const page = yield* send("read", `the list of ${sought}`, (how) =>
          client.send(
            new sdk.ListObjectsV2Command({
              Bucket: bucket,
              Prefix: `${root}${sought}`,
              ...(token === undefined ? {} : { ContinuationToken: token })
            }),
            how
          )
        )
        const objects = (page.Contents ?? []).flatMap(({ Key, Size }) =>
          Key?.startsWith(root) === true ? [{ key: Key.slice(root.length), bytes: Size ?? 0 }] : []
        )
        return [objects, Option.fromUndefinedOr(page.NextContinuationToken)] as const
      })
    )

  return {
    id,
    put,
    get: (key) => readFrom(key, 0, undefined, resumptions),
    list,
    // One by one: not every server takes lists of them.
    remove: (keys) =>
      Effect.forEach(
        keys,
        (key) =>
          send("delete", key, (how) => client.send(new sdk.DeleteObjectCommand(at(key)), how)).pipe(
            Effect.catchIf(
              ({ reason }) => reason === "not_found",
              () => Effect.void
            )
          ),
        { concurrency: removalsAtOnce, discard: true }
      )
  }
}

interface Upload {
  readonly Bucket: string
  readonly Key: string
  readonly UploadId: string
}

interface Piece {
  readonly body: Uint8Array
  readonly last: boolean
}

/** Pieces of one size, and a last one that may be smaller. Without any content there is one that is empty. */
const inPieces = (content: Stream.Stream<Uint8Array, PlaceError>): Stream.Stream<Piece, PlaceError> =>
  Stream.mapAccum(
    content,
    (): Held => ({ chunks: [], size: 0 }),
    (held, chunk) => {
      const size = held.size + chunk.length
      held.chunks.push(chunk)
      if (size <= partSize) return accumulated({ ...held, size }, [])
      const pieces: Array<Piece> = []
      let rest = Buffer.concat(held.chunks)
      while (rest.length > partSize) {
        pieces.push({ body: rest.subarray(0, partSize), last: false })
        rest = rest.subarray(partSize)
      }
      return accumulated({ chunks: [rest], size: rest.length }, pieces)
    },
    { onHalt: ({ chunks }) => [{ body: Buffer.concat(chunks), last: true }] }
  )

const accumulated = (held: Held, pieces: ReadonlyArray<Piece>): readonly [Held, ReadonlyArray<Piece>] => [
  held,
  pieces
]

interface Held {
  readonly chunks: Array<Uint8Array>
  readonly size: number
}

const bodyOf = (key: string, { Body }: GetObjectCommandOutput) => {
  const broken = faultOf("read", key)
  return Body instanceof Readable
    ? Stream.fromAsyncIterable<Uint8Array, PlaceError>(Body, broken)
    : Stream.fail(broken(undefined))
}
