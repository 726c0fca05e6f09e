/**
 * Source that was uploaded and waits for its build: files in the data folder, by organization and digest. One is there
 * once its description is, which is written last. They go when no deployment waits for them.
 */
import { randomUUID } from "node:crypto"
import { constants, createReadStream } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { PassThrough, Readable, Transform } from "node:stream"
import { finished, pipeline } from "node:stream/promises"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { BuildPlan } from "#schemas/build-plan.ts"
import { AppConfig } from "#src/config.ts"
import { makeTurns } from "#src/infra/host/turns.ts"
import { ArchiveRefused, repack } from "./archive.ts"
import * as earlier from "./earlier-archives.ts"
import { digestOf } from "./facts.ts"
import type { Piece } from "./piece.ts"
import { planOf } from "./plan.ts"
import type { PlanRefused } from "./plan-refused.ts"
import { settings } from "./settings.ts"
import { filesIn, keyOf, outdated, refOf, roomFor, stemOf, type UploadRef } from "./upload-files.ts"

const mebibyte = 1024 * 1024
/** Files and folders of one upload. */
const mostEntries = 100_000
/** Uploads that are taken at once in one process, and of one organization. */
const atOnce = 8
const atOnceOfOne = 2
/** How long an upload that no deployment waits for stays: whoever sent it is about to ask for one. */
const idleMs = 900_000

const Description = Schema.Struct({
  /** Of what was sent. */
  bytes: Schema.Int,
  entries: Schema.Int,
  plan: BuildPlan,
  /** Digest of the lock files, for which what packages were fetched is kept. */
  locks: Schema.String
})
const Stored = Schema.fromJsonString(Description)
const decode = Schema.decodeUnknownEffect(Stored)
const encode = Schema.encodeSync(Stored)

export type Upload = typeof Description.Type

/** How far an upload in parts has come. */
export interface Progress {
  readonly received: number
  /** Bytes that are still to be sent. */
  readonly missing: number
  /** Where the stretch that begins at `received` and is to be sent next ends: what follows is here. */
  readonly until: number
  /** Undefined: it is not here as a whole. */
  readonly upload: Upload | undefined
}

export class UploadFailed extends Schema.TaggedError<UploadFailed>()("UploadFailed", {
  reason: Schema.Literals(["Full", "Disk", "Lost"]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export class Uploads extends Context.Service<
  Uploads,
  {
    /** Reads all of the source, also of one that is refused. */
    readonly store: (
      ref: UploadRef,
      source: Readable
    ) => Effect.Effect<Upload, ArchiveRefused | PlanRefused | UploadFailed>
    /**
     * Adds a part of the archive, of `size` bytes in all, where `offset` bytes of it are here. Answers how many are here
     * then, and what it is once that is all of it; a part that begins elsewhere is not taken, which that tells as well.
     */
    readonly append: (
      ref: UploadRef,
      part: { readonly offset: number; readonly size: number },
      source: Readable
    ) => Effect.Effect<Progress, ArchiveRefused | PlanRefused | UploadFailed>
    /**
     * Says of which pieces an archive consists, in their order. Those that the organization has sent in earlier archives
     * are put in their places by `append`, and need not be sent.
     */
    readonly compare: (
      ref: UploadRef,
      pieces: ReadonlyArray<Piece>
    ) => Effect.Effect<Progress, ArchiveRefused | PlanRefused | UploadFailed>
    /**
     * The same for source that comes from elsewhere than a user's request. Its digest is of the archive that is kept, so
     * that the same files in the same order are the same source.
     */
    readonly keep: (
      orgId: string,
      source: Readable
    ) => Effect.Effect<Upload & UploadRef, ArchiveRefused | PlanRefused | UploadFailed>
    readonly find: (ref: UploadRef) => Effect.Effect<Option.Option<Upload>>
    /** Its archive: files and folders of `buildUser`, below `./`. */
    readonly fileOf: (ref: UploadRef) => string
    /** Removes those that are in nobody's way any more. Answers how many. */
    readonly sweep: <E>(
      wanted: (refs: ReadonlyArray<UploadRef>) => Effect.Effect<ReadonlySet<string>, E>
    ) => Effect.Effect<number, E>
  }
>()("svc/builds/Uploads") {
  static readonly layer = Layer.effect(
    Uploads,
    Effect.gen(function* () {
      const { dataDir } = yield* AppConfig
      const { floorMb, uploadMb, uploadsMb } = yield* settings
      const root = path.join(dataDir, "uploads")
      const room = { dataDir, root, bytes: uploadsMb * mebibyte, floor: floorMb * mebibyte }
      const turns = makeTurns(atOnce, atOnceOfOne)
      /** One at a time puts together what has the same digest. Whoever waits for it has a turn already. */
      const writers = makeTurns(atOnce, 1)
      /** Bytes that are under way, by what they belong to. */
      const coming = new Map<string, { readonly orgId: string; readonly bytes: number }>()
      const placeOf = ({ orgId, digest }: UploadRef) => path.join(root, orgId, digest)
      const fileOf = (ref: UploadRef) => `${placeOf(ref)}.tar`
      const disk = <A>(body: (signal: AbortSignal) => Promise<A>) =>
        Effect.tryPromise({
          try: body,
          catch: (cause) =>
            new UploadFailed({ reason: "Disk", message: "The source could not be kept on this host", cause })
        })

      const find = (ref: UploadRef) =>
        Effect.option(
          Effect.flatMap(
            Effect.tryPromise(() => fs.readFile(`${placeOf(ref)}.json`, "utf8")),
            decode
          )
        )

      const files = disk(() => filesIn(root))
      const hasRoom = (orgId: string, bytes: number, rest?: UploadRef) =>
        Effect.gen(function* () {
          const wanted = { orgId, bytes, rest: rest?.digest }
          if (yield* disk(roomFor(wanted, yield* files, [...coming.values()], room))) return
          return yield* new UploadFailed({
            reason: "Full",
            message: "So much source waits for its build that no more is taken now; try again later"
          })
        })

      const known = Effect.fnUntraced(function* (ref: UploadRef) {
        const found = yield* find(ref)
        if (Option.isNone(found)) return undefined
        const now = (yield* Clock.currentTimeMillis) / 1_000
        yield* disk(() => fs.utimes(`${placeOf(ref)}.json`, now, now))
        return found.value
      })

      /**
       * `digest`: what is expected, in hexadecimal; undefined: whatever comes. `isHere`: the source is on the disk, and
       * there was room for it.
       */
      const take = Effect.fnUntraced(function* (
        orgId: string,
        digest: string | undefined,
        source: Readable,
        isHere = false
      ) {
        const before = digest === undefined ? undefined : yield* known({ orgId, digest })
        if (digest !== undefined && before !== undefined) return { orgId, digest, ...before }
        if (!isHere) yield* hasRoom(orgId, 1)
        const draft = path.join(root, orgId, `${randomUUID()}.part`)
        const bounds = { bytes: uploadMb * mebibyte, entries: mostEntries }
        const store = Effect.gen(function* () {
          yield* disk(() => fs.mkdir(path.dirname(draft), { recursive: true, mode: 0o700 }))
          const packed = yield* Effect.tryPromise({
            try: (signal) => repack(source, draft, bounds, signal),
            catch: (cause) =>
              cause instanceof ArchiveRefused
                ? cause
                : new UploadFailed({ reason: "Lost", message: "The source did not come to its end", cause })
          })
          if (digest !== undefined && digest !== packed.sent)
            return yield* new ArchiveRefused({
              code: "digest_mismatch",
              message: "What was sent does not have the digest that it is sent under"
            })
          const { bytes, entries, facts } = packed
          const planned = planOf(facts)
          if (Result.isFailure(planned)) return yield* planned.failure
          const locks = digestOf(Buffer.from(JSON.stringify([...facts.locks].toSorted())))
          const upload = { bytes, entries, plan: planned.success, locks }
          const ref = { orgId, digest: digest ?? packed.digest }
          yield* disk(async () => {
            await fs.rename(draft, fileOf(ref))
            await fs.writeFile(draft, encode(upload), { mode: 0o600 })
            await fs.rename(draft, `${placeOf(ref)}.json`)
          })
          return { ...ref, ...upload }
        })
        return yield* Effect.ensuring(store, Effect.ignore(disk(() => fs.rm(draft, { force: true }))))
      })

      const append = Effect.fnUntraced(function* (
        ref: UploadRef,
        { offset, size }: { readonly offset: number; readonly size: number },
        source: Readable
      ) {
        const before = yield* known(ref)
        if (before !== undefined) return whole(before)
        if (size > uploadMb * mebibyte)
          return yield* new ArchiveRefused({
            code: "archive_too_large",
            message: `The source has more than ${uploadMb * mebibyte} bytes`
          })
        const file = `${placeOf(ref)}.sending`
        const lengthOf = disk(() =>
          fs.stat(file).then(
            (stat) => stat.size,
            () => 0
          )
        )
        const there = yield* lengthOf
        const rest = size - there
        if (offset === there && rest > 0) {
          yield* hasRoom(ref.orgId, rest, ref)
          const write = Effect.tryPromise({
            try: async (signal) => {
              await fs.mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
              // Where it belongs, and not at the end: another process may write the same.
              const opened = await fs.open(file, constants.O_WRONLY | constants.O_CREAT, 0o600)
              await pipeline(source, atMost(rest), opened.createWriteStream({ start: offset }), { signal })
            },
            catch: (cause) =>
              new UploadFailed({ reason: "Lost", message: "The part did not come to its end", cause })
          })
          coming.set(keyOf(ref), { orgId: ref.orgId, bytes: rest })
          yield* Effect.ensuring(
            write,
            Effect.sync(() => coming.delete(keyOf(ref)))
          )
        }
        yield* disk((signal) => earlier.fill(placeOf(ref), file, signal))
        const received = yield* lengthOf
        if (received < size)
          return {
            received,
            upload: undefined,
            ...(yield* disk(() => earlier.wantedOf(placeOf(ref), received, size)))
          }
        const taken = take(ref.orgId, ref.digest, createReadStream(file), true).pipe(
          Effect.tapErrorTag("ArchiveRefused", () =>
            Effect.ignore(disk(() => earlier.forgetSources(placeOf(ref))))
          ),
          Effect.tap(() => Effect.ignore(disk((signal) => earlier.keepEarlier(placeOf(ref), file, signal))))
        )
        // Whatever it is found to be: what is wrong of it stays so.
        const gone = Effect.ignore(
          disk(async () => {
            await fs.rm(file, { force: true })
            await fs.rm(`${placeOf(ref)}.copies`, { force: true })
          })
        )
        return whole(yield* Effect.ensuring(taken, gone))
      })

      const compare = Effect.fnUntraced(function* (ref: UploadRef, pieces: ReadonlyArray<Piece>) {
        const size = pieces.reduce((sum, { bytes }) => sum + bytes, 0)
        const before = yield* known(ref)
        if (before === undefined && size <= uploadMb * mebibyte) {
          yield* hasRoom(ref.orgId, size, ref)
          yield* disk(() => earlier.compare(placeOf(ref), pieces))
        }
        return yield* append(ref, { offset: 0, size }, Readable.from([]))
      })

      /** One at a time changes what is there of an archive. */
      const alone = (ref: UploadRef) => (self: ReturnType<typeof append>) =>
        self.pipe(
          writers.take({ owner: keyOf(ref), first: false }),
          turns.take({ owner: ref.orgId, first: false })
        )

      return Uploads.of({
        append: (ref, part, source) =>
          append(ref, part, source).pipe(
            alone(ref),
            Effect.ensuring(Effect.sync(() => void source.resume())),
            Effect.withSpan("Uploads.append")
          ),
        compare: Effect.fn("Uploads.compare")((ref, pieces) => alone(ref)(compare(ref, pieces))),
        store: (ref, source) =>
          Effect.suspend(() => {
            // What reads a source that it refuses ends it; whoever sends it hears the answer only if all is read.
            const body = source.pipe(new PassThrough())
            source.once("error", (error) => body.destroy(error))
            const rest = Effect.promise(async () => {
              source.unpipe(body)
              body.destroy()
              source.resume()
              if (!source.readableEnded && !source.destroyed) await finished(source).catch(() => undefined)
            })
            return take(ref.orgId, ref.digest, body).pipe(
              turns.take({ owner: ref.orgId, first: false }),
              Effect.ensuring(Effect.interruptible(rest))
            )
          }).pipe(Effect.withSpan("Uploads.store")),
        keep: Effect.fn("Uploads.keep")((orgId, source) =>
          take(orgId, undefined, source).pipe(turns.take({ owner: orgId, first: false }))
        ),
        find,
        fileOf,
        sweep: (wanted) =>
          Effect.gen(function* () {
            const now = yield* Clock.currentTimeMillis
            const everything = yield* Effect.orElseSucceed(files, () => [])
            const remove = (name: string) =>
              Effect.ignore(disk(() => fs.rm(path.join(root, name), { force: true })))
            yield* Effect.forEach(outdated(everything, now), remove, { discard: true })
            const oldest = now - idleMs
            const all = everything.filter(({ name }) => !earlier.isEarlier(name))
            const newest = new Map<string, number>()
            for (const { name, at } of all) {
              const stem = stemOf(name)
              newest.set(stem, Math.max(at, newest.get(stem) ?? 0))
            }
            const idle = all.filter(({ name }) => (newest.get(stemOf(name)) ?? 0) <= oldest)
            const refs = idle.map(({ name }) => refOf(name))
            const kept = refs.length === 0 ? new Set<string>() : yield* wanted(refs)
            const gone = idle.filter(({ name }) => !kept.has(keyOf(refOf(name))))
            // The description first: without it the archive is not there for anybody.
            const inOrder = gone.toSorted(
              (a, b) => Number(b.name.endsWith(".json")) - Number(a.name.endsWith(".json"))
            )
            yield* Effect.forEach(inOrder, ({ name }) => remove(name), { discard: true })
            return gone.length
          })
      })
    })
  )
}

export const whole = (upload: Upload): Progress => ({
  received: upload.bytes,
  missing: 0,
  until: upload.bytes,
  upload
})

/** What comes after so many bytes is an error. */
const atMost = (bytes: number) => {
  let left = bytes
  return new Transform({
    transform(chunk: Buffer, _, done) {
      left -= chunk.length
      if (left < 0) done(new Error("More came than was announced"))
      else done(null, chunk)
    }
  })
}
