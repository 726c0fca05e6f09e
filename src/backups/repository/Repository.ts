/**
 * What can be restored, and restoring it into folders: from the repository of this machine, else from a destination
 * that has the objects. Nothing is written out that was not authenticated, and memory does not grow with the size.
 */
import { createWriteStream } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { pipeline } from "node:stream/promises"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"
import { Host } from "#src/infra/host/Host.ts"
import { switchLog } from "#src/infra/postgres/backup.ts"
import { serverFolders } from "#src/infra/postgres/folders.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type BaseRange, type Chain, chainsOf, chainTo, type Window, windowsOf } from "../archive/log.ts"
import { WalRanges } from "../archive/WalRanges.ts"
import { Remotes } from "../destinations/Remotes.ts"
import { serverFault } from "../error-messages.ts"
import { type JobRecord, Jobs } from "../Jobs.ts"
import { Ledger, type LineageRef, type StoredObject } from "../Ledger.ts"
import { BackupOptions } from "../options.ts"
import { unpack } from "./bundle.ts"
import { localPlace, type Place, PlaceError } from "./Place.ts"
import { openSealed } from "./transfer.ts"

/** A state that can be recovered, and all that it takes. */
export interface Recovery {
  readonly orgId: string
  readonly lineage: string
  readonly backup: {
    readonly id: string
    /** Content of `backup_label`, and of `tablespace_map` when it is not empty. */
    readonly label: string
    readonly tablespaceMap: string
    readonly timeline: number
    readonly consistentAt: Date
  }
  /** Every commit before it and none after; absent: the end of the backup. */
  readonly target: Date | undefined
  /** Segments and history files of the log, by name. */
  readonly segments: ReadonlyArray<string>
  readonly baseBytes: number
}

export class OutsideWindow extends Schema.TaggedError<OutsideWindow>()("OutsideWindow", {
  message: Schema.String,
  windows: Schema.Array(Schema.Struct({ from: Schema.Date, to: Schema.Date }))
}) {}

/** A flush did not come to its end: nothing is known of what can be recovered besides what was known before. */
export class FlushFailed extends Schema.TaggedError<FlushFailed>()("FlushFailed", {
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export type Wanted =
  | { readonly kind: "backup"; readonly backupId: string }
  | { readonly kind: "time"; readonly at: Date }

type OnProgress = (done: number, total: number) => void

export class Repository extends Context.Service<
  Repository,
  {
    /** The repository of this machine. */
    readonly local: Place
    readonly windows: (ref: LineageRef) => Effect.Effect<ReadonlyArray<Window>, StoreUnavailable>
    readonly choose: (
      ref: LineageRef,
      wanted: Wanted
    ) => Effect.Effect<Recovery, OutsideWindow | StoreUnavailable>
    /**
     * Like `choose`; for a moment that has passed and is not archived yet, the live source is flushed first.
     */
    readonly reach: (
      ref: LineageRef,
      databaseUid: string,
      wanted: Wanted
    ) => Effect.Effect<Recovery, OutsideWindow | StoreUnavailable>
    /** Puts the files of the base backup into a folder. The label is not among them; it is told by the recovery. */
    readonly fetchBase: (
      recovery: Recovery,
      into: string,
      onProgress: OnProgress
    ) => Effect.Effect<void, PlaceError | StoreUnavailable>
    /** Puts plain segments and history files into a folder, by their names. */
    readonly fetchWal: (
      recovery: Recovery,
      into: string,
      onProgress: OnProgress
    ) => Effect.Effect<void, PlaceError | StoreUnavailable>
    /**
     * Brings everything that was committed until now into the repository: afterwards every moment before the answer
     * can be recovered. Needs the live server.
     */
    readonly flush: (
      orgId: string,
      databaseUid: string
    ) => Effect.Effect<Date, FlushFailed | StoreUnavailable>
  }
>()("svc/backups/Repository") {
  static readonly layer = Layer.effect(
    Repository,
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const jobs = yield* Jobs
      const remotes = yield* Remotes
      const ranges = yield* WalRanges
      const servers = yield* PostgresServers
      const { socketDir } = yield* Host
      const { dataDir } = yield* AppConfig
      const options = yield* BackupOptions
      const local = localPlace(path.join(dataDir, "backups"))

      const keyOf = Effect.fnUntraced(function* (ref: LineageRef) {
        const key = yield* ledger.keyOf(ref)
        if (Option.isSome(key)) return key.value
        return yield* new PlaceError({ reason: "not_found", message: "The key of the backups is gone" })
      })

      /** From the first place that gives the whole of it. */
      const open = Effect.fnUntraced(function* (
        ref: LineageRef,
        key: Uint8Array,
        object: StoredObject,
        use: (content: AsyncIterable<Uint8Array>) => Promise<void>
      ) {
        const said: Array<string> = []
        const from = (place: Effect.Effect<Place, PlaceError>, at: string) =>
          Effect.flatMap(place, (one) => openSealed(one, at, key, ref.lineage, object, use)).pipe(
            Effect.as(true),
            Effect.catchTag("PlaceError", (error) =>
              Effect.sync(() => {
                said.push(error.message)
                return false
              })
            )
          )
        if (yield* from(Effect.succeed(local), object.key)) return
        for (const { destinationId, version, key: at } of object.copies) {
          if (yield* from(remotes.at(ref.orgId, destinationId, version), at)) return
        }
        return yield* new PlaceError({
          reason: "read",
          message: `${object.name} cannot be read from anywhere: ${said.join("; ")}`
        })
      })

      const state = Effect.fnUntraced(function* (ref: LineageRef) {
        const bases = (yield* jobs.bases(ref.orgId, ref.lineage)).flatMap(baseOf)
        const [first] = bases.map(({ startSegment }) => startSegment.slice(8)).sort()
        const runs = first === undefined ? [] : yield* ranges.runs(ref, first)
        return { bases, runs }
      })

      const outside = (windows: ReadonlyArray<Window>, what: string) =>
        new OutsideWindow({
          message:
            windows.length === 0
              ? `${what}; nothing can be restored yet`
              : `${what}; what can be restored is ${windows
                  .map(({ from, to }) => `${from.toISOString()} to ${to.toISOString()}`)
                  .join(", ")}`,
          windows
        })

      const recoveryOf = Effect.fnUntraced(function* (
        ref: LineageRef,
        base: BaseRange,
        segments: ReadonlyArray<string>,
        target: Date | undefined
      ) {
        const labels = yield* jobs.labelOf(ref.orgId, base.id)
        const parts = yield* ledger.objects(ref, { backupId: base.id })
        if (Option.isNone(labels) || parts.length === 0) return undefined
        const recovery: Recovery = {
          orgId: ref.orgId,
          lineage: ref.lineage,
          backup: {
            id: base.id,
            ...labels.value,
            timeline: base.timeline,
            consistentAt: base.consistentAt
          },
          target,
          segments,
          baseBytes: parts.reduce((sum, { plainBytes }) => sum + plainBytes, 0)
        }
        return recovery
      })

      /** Until the first segment that was written well after the moment: it holds a commit to stop at, or there is none. */
      const filesTo = Effect.fnUntraced(function* (ref: LineageRef, { base, last }: Chain, at: Date) {
        const end = last.slice(8)
        const enough = (yield* ranges.firstAfter(ref, stretchOf(base, end), at)) ?? end
        const stop = base.stopSegment.slice(8)
        return [
          ...(yield* ranges.histories(ref)),
          ...(yield* ranges.names(ref, stretchOf(base, [enough, stop].sort()[1] ?? stop)))
        ]
      })

      const choose = Effect.fn("Repository.choose")(function* (ref: LineageRef, wanted: Wanted) {
        const { bases, runs } = yield* state(ref)
        const windows = windowsOf(bases, runs)
        if (wanted.kind === "time") {
          const chain = chainTo(bases, runs, wanted.at)
          const recovery =
            chain === undefined
              ? undefined
              : yield* recoveryOf(ref, chain.base, yield* filesTo(ref, chain, wanted.at), wanted.at)
          return recovery ?? (yield* outside(windows, `${wanted.at.toISOString()} cannot be restored`))
        }
        const base = bases.find(({ id }) => id === wanted.backupId)
        // Up to the backup's own end: a later segment would replay what came after it.
        const own =
          base === undefined || !chainsOf([base], runs).has(base.id)
            ? []
            : yield* ranges.names(ref, stretchOf(base, base.stopSegment.slice(8)))
        const recovery =
          base === undefined || own.length === 0 ? undefined : yield* recoveryOf(ref, base, own, undefined)
        return recovery ?? (yield* outside(windows, "There is no such backup"))
      })

      const flush = Effect.fn("Repository.flush")(function* (orgId: string, databaseUid: string) {
        const failed = (message: string, cause?: unknown) => new FlushFailed({ message, cause })
        const server = yield* Effect.mapError(servers.inspect(databaseUid), (error) =>
          failed(serverFault(error), error)
        )
        const { port, lineage } = Option.getOrUndefined(server) ?? {}
        if (port === undefined || lineage === undefined) return yield* failed("The database has no server")
        const { segment, at } = yield* Effect.mapError(switchLog({ socketDir, port }), (error) =>
          failed(serverFault(error), error)
        )
        const ref = { orgId, lineage }
        const name = `wal/${segment}`
        const finished = path.join(serverFolders(dataDir).spoolOf(databaseUid, lineage), segment)
        let announced = false
        const look = Effect.gen(function* () {
          if ((yield* ledger.known(ref, [name])).has(name)) return true
          // Whoever ships looks now and then by itself; somebody waits for this one.
          if (!announced && (yield* isThere(finished))) {
            announced = true
            yield* ledger.wantFlush(ref, options.segmentWaitMs / 1000)
          }
          return false
        })
        const found = yield* look.pipe(
          Effect.repeat({ until: (there) => there, schedule: Schedule.spaced("30 millis") }),
          Effect.timeoutOption(options.segmentWaitMs)
        )
        if (Option.isNone(found)) {
          return yield* failed(
            "The end of the database's log did not come into the repository in time: is archiving late?"
          )
        }
        yield* ledger.flushed(ref, name, at)
        yield* Effect.logDebug("a database's log was flushed", {
          databaseUid,
          at,
          now: yield* Clock.currentTimeMillis
        })
        return at
      })

      const reach = Effect.fn("Repository.reach")(function* (
        ref: LineageRef,
        databaseUid: string,
        wanted: Wanted
      ) {
        const now = yield* Clock.currentTimeMillis
        const first = choose(ref, wanted)
        if (wanted.kind === "backup" || wanted.at.getTime() > now) return yield* first
        return yield* Effect.catchTag(first, "OutsideWindow", (outside) =>
          outside.windows.some(({ to }) => to < wanted.at)
            ? flush(ref.orgId, databaseUid).pipe(
                Effect.catchTag("FlushFailed", (error) =>
                  Effect.fail(
                    new OutsideWindow({ ...outside, message: `${outside.message} (${error.message})` })
                  )
                ),
                Effect.andThen(choose(ref, wanted))
              )
            : Effect.fail(outside)
        )
      })

      return Repository.of({
        local,
        windows: Effect.fn("Repository.windows")(function* (ref) {
          const { bases, runs } = yield* state(ref)
          return windowsOf(bases, runs)
        }),
        choose,
        reach,
        fetchBase: Effect.fn("Repository.fetchBase")(function* (recovery, into, onProgress) {
          const key = yield* keyOf(recovery)
          const parts = yield* ledger.objects(recovery, { backupId: recovery.backup.id })
          let whole = 0
          for (const part of parts) {
            yield* open(recovery, key, part, (content) => {
              let here = 0
              return unpack(content, into, (bytes) => {
                here += bytes
                onProgress(Math.min(whole + here, recovery.baseBytes), recovery.baseBytes)
              })
            })
            whole += part.plainBytes
            onProgress(whole, recovery.baseBytes)
          }
        }),
        fetchWal: Effect.fn("Repository.fetchWal")(function* (recovery, into, onProgress) {
          const key = yield* keyOf(recovery)
          const total = recovery.segments.length
          let done = 0
          for (let at = 0; at < total; at += batch) {
            const names = recovery.segments.slice(at, at + batch).map((name) => `wal/${name}`)
            const objects = yield* ledger.objects(recovery, { names })
            if (objects.length < names.length) {
              return yield* new PlaceError({
                reason: "not_found",
                message: "A segment of the log was removed meanwhile: its time of keeping has passed"
              })
            }
            yield* Effect.forEach(
              objects,
              (object) =>
                open(recovery, key, object, async (content) => {
                  const file = path.join(into, object.name.slice("wal/".length))
                  await pipeline(content, createWriteStream(`${file}.part`, { mode: 0o600 }))
                  await fs.rename(`${file}.part`, file)
                }).pipe(Effect.tap(() => Effect.sync(() => onProgress(++done, total)))),
              { concurrency: 4, discard: true }
            )
          }
        }),
        flush
      })
    })
  )
}

const isThere = (file: string) =>
  Effect.promise(() =>
    fs.access(file).then(
      () => true,
      () => false
    )
  )

/** Segments that are looked up at a time. */
const batch = 200

/** From the beginning of a base backup to a place. */
const stretchOf = ({ startSegment, timeline }: BaseRange, last: string) => ({
  timeline: timeline.toString(16).toUpperCase().padStart(8, "0"),
  first: startSegment.slice(8),
  last
})

export const baseOf = (job: JobRecord): ReadonlyArray<BaseRange> => {
  const { id, startSegment, stopSegment, timeline, consistentAt } = job
  return startSegment === null || stopSegment === null || timeline === null || consistentAt === null
    ? []
    : [{ id, startSegment, stopSegment, timeline, consistentAt }]
}
