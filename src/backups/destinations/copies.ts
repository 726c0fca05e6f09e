/**
 * Brings objects to the destinations of their organizations, and takes them away there when their time has passed: one
 * copy is a job of a leased loop. A destination that fails is left alone for a while, longer each time, and holds up no
 * other.
 */
import { createHash } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Stream from "effect/Stream"
import type { LeasedLoop, Room } from "#src/loops/leased.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { BackupOptions } from "../options.ts"
import { type Place, PlaceError } from "../repository/Place.ts"
import { Repository } from "../repository/Repository.ts"
import { makeDestinationBackoff, type Way } from "./backoff.ts"
import { type ClaimedCopy, copyId, leaseSeconds, makeCopyRows } from "./copy-rows.ts"
import { Remotes } from "./Remotes.ts"
import { shareOut } from "./turns.ts"

/** Copies of one destination on their way in one process, putting and removing apart. */
const atOnceThere = 3
/** How long one object may take: a part of a backup over a slow line. */
const longest = "1 hour"
/** A stray object that cannot be removed in this time stays. */
const strayPatience = "30 seconds"

const outcomes = Metric.counter("svc_backup_copies_total", {
  description: "Objects brought to destinations, or removed there, by outcome",
  incremental: true
})

/** What a copy came to. */
export type CopyResult =
  | { readonly _tag: "Stored"; readonly place: Place; readonly version: number }
  | { readonly _tag: "Removed" }
  /** Its object was gone before anything was sent. */
  | { readonly _tag: "Unwanted" }
  /** It is to be removed since it was claimed, or somebody else has it: nothing was sent. */
  | { readonly _tag: "Superseded" }
  /** A fault of the destination, unlike one of the object, holds for whatever else goes there. */
  | { readonly _tag: "Failed"; readonly error: PlaceError; readonly faultOf: "object" | "destination" }

/** Who shares fairly. */
const wayKey = ({ orgId, destinationId, removing }: Way) => `${orgId}/${destinationId}/${removing}`

export const makeCopies = Effect.gen(function* () {
  const remotes = yield* Remotes
  const repository = yield* Repository
  const options = yield* BackupOptions
  const pauses = yield* makeDestinationBackoff
  const rows = yield* makeCopyRows

  /** The destination whose turn was the last. */
  let lastTurn = ""
  /** A destination that failed is tried with one copy; once that went well, it is like all others. */
  const claim = Effect.fnUntraced(function* ({ most, orgs, running }: Room<ClaimedCopy>) {
    const trials = new Set([...running].filter(({ trial }) => trial).map(wayKey))
    const due = (yield* pauses.ways).filter(({ dueIn }) => dueIn <= 0)
    const waiting = due.map((way) => {
      const key = wayKey(way)
      const { held, room } = orgs.holders.get(key) ?? { held: 0, room: orgs.others }
      return { key, held, room: !way.paused ? room : trials.has(key) ? 0 : Math.min(1, room) }
    })
    const shares = shareOut(waiting, most, lastTurn)
    lastTurn = [...shares.keys()].at(-1) ?? lastTurn
    const turns = yield* Effect.filter(
      due.flatMap((way) => {
        const places = shares.get(wayKey(way))
        return places === undefined ? [] : [{ ...way, most: places, trial: way.paused }]
      }),
      (turn) => (turn.trial ? pauses.take(turn) : Effect.succeed(true))
    )
    return turns.length === 0 ? [] : yield* rows.claim(turns)
  })

  /** What leaves is compared with what was recorded when it was made: a damaged disk spreads nothing. */
  const contentOf = (one: ClaimedCopy, onFault: () => void) => {
    const hash = createHash("sha256")
    return repository.local.get(one.key).pipe(
      Stream.tap((chunk) => Effect.sync(() => hash.update(chunk))),
      Stream.concat(
        Stream.unwrap(
          Effect.sync(() =>
            hash.digest("hex") === one.sha256
              ? Stream.empty
              : Stream.fail(
                  new PlaceError({ reason: "read", message: `${one.name} is damaged in the repository here` })
                )
          )
        )
      ),
      Stream.tapError(() => Effect.sync(onFault))
    )
  }

  /** It came after somebody had removed it, and is to be removed once more; or somebody else brings it as well. */
  const takeBack = Effect.fnUntraced(function* (one: ClaimedCopy, place: Place, version: number) {
    if (yield* rows.takeBack(one, version)) return
    yield* place.remove([one.key]).pipe(
      Effect.timeout(strayPatience),
      Effect.catch((error) =>
        Effect.logWarning("an object of a backup stays at its destination: nothing tells of it", {
          destination: one.destinationId,
          key: one.key,
          error: error.message
        })
      )
    )
  })

  const put = Effect.fnUntraced(function* (one: ClaimedCopy, onFault: () => void) {
    const { place, version } = yield* remotes.current(one.orgId, one.destinationId)
    // Another attempt may have come to its end at the bucket that the destination was before.
    if (one.version !== null && one.version !== version) {
      const before = remotes.at(one.orgId, one.destinationId, one.version)
      yield* Effect.ignore(Effect.flatMap(before, (bucket) => bucket.remove([one.key])))
    }
    // Written first: whatever ends this process, it stays known where an object may be.
    if (!(yield* rows.begin(one, version))) return { _tag: "Superseded" } as const
    yield* place.put(one.key, contentOf(one, onFault)).pipe(
      // Interrupted because it has lost its lease, perhaps to one who has removed the object before it arrived.
      Effect.onInterrupt(() => Effect.ignore(takeBack(one, place, version)))
    )
    return { _tag: "Stored", place, version } as const
  })

  const remove = Effect.fnUntraced(function* (one: ClaimedCopy) {
    if (one.version !== null) {
      const place = yield* remotes.at(one.orgId, one.destinationId, one.version)
      yield* place.remove([one.key])
    }
    return { _tag: "Removed" } as const
  })

  const run = (one: ClaimedCopy): Effect.Effect<CopyResult, StoreUnavailable> =>
    Effect.suspend(() => {
      let damaged = false
      const act: Effect.Effect<CopyResult, PlaceError | StoreUnavailable> = one.removing
        ? remove(one)
        : one.sha256 === null
          ? Effect.succeed({ _tag: "Unwanted" })
          : put(one, () => {
              damaged = true
            })
      return act.pipe(
        Effect.timeoutOrElse({
          duration: longest,
          orElse: () =>
            Effect.fail(new PlaceError({ reason: "timeout", message: "The destination took too long" }))
        }),
        Effect.tap(() => Metric.update(Metric.withAttributes(outcomes, { outcome: "ok" }), 1)),
        Effect.catchTag("PlaceError", (error) =>
          Effect.as(Metric.update(Metric.withAttributes(outcomes, { outcome: error.reason }), 1), {
            _tag: "Failed",
            error,
            faultOf: damaged ? "object" : "destination"
          } as const)
        )
      )
    })

  const again = (one: ClaimedCopy, error: PlaceError) =>
    one.removing && one.tries + 1 >= options.removalTries
      ? Effect.andThen(
          Effect.logWarning("an object of a backup stays at its destination: removing it failed too often", {
            destination: one.destinationId,
            key: one.key,
            error: error.message
          }),
          rows.forget(one)
        )
      : rows.failed(one, error.message)

  const pause = Effect.fnUntraced(function* (one: ClaimedCopy, error: PlaceError) {
    const failures = yield* pauses.failed(one, error.message, one.trial)
    if (!one.removing || failures < options.removalTries) return
    const objects = yield* rows.giveUpRemovals(one)
    yield* pauses.over(one)
    yield* Effect.logWarning("objects of backups stay at their destination: removing them failed too often", {
      destination: one.destinationId,
      objects,
      error: error.message
    })
  })

  const record = Effect.fnUntraced(function* (one: ClaimedCopy, result: CopyResult) {
    switch (result._tag) {
      case "Stored":
        if (!(yield* rows.stored(one))) yield* takeBack(one, result.place, result.version)
        return
      case "Removed":
        return yield* rows.forget(one)
      case "Unwanted":
        return yield* rows.unwanted(one)
      case "Superseded":
        return yield* rows.release(one)
      case "Failed":
        return yield* again(one, result.error)
    }
  })

  const loop: LeasedLoop<ClaimedCopy, CopyResult> = {
    name: "copies",
    does: "bring backups to destinations",
    idOf: copyId,
    orgOf: wayKey,
    // Each copy on its way holds pieces of its object in memory, so they are few, and destinations take turns.
    atOnce: options.copiesAtOnce,
    mostOfOneOrg: atOnceThere,
    reserve: false,
    // Should a renewal come late, two processes bring the same bytes to the same name.
    leaseMs: leaseSeconds * 1000,
    claim,
    run,
    settle: Effect.fnUntraced(function* (one, result) {
      yield* record(one, result)
      if (result._tag === "Failed" && result.faultOf === "destination") yield* pause(one, result.error)
      else if (one.trial) yield* pauses.over(one)
    }),
    renew: rows.renew,
    release: (held) => Effect.forEach(held, rows.release, { discard: true }),
    nextIn: Effect.map(pauses.ways, (ways) =>
      ways.length === 0 ? undefined : Math.min(...ways.map(({ dueIn }) => dueIn))
    )
  }

  return {
    loop,
    failing: pauses.failing,
    tidy: Effect.andThen(rows.tidy, pauses.tidy)
  }
})
