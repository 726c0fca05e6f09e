/**
 * The standbys of a database: servers beside its own, named by its uid, that begin as copies of it and follow its log.
 * They are looked at when nothing is wrong with the primary, and whatever is wrong with them leaves the database ready.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { type Difference, Retryable } from "#src/engine/Reconciler.ts"
import type { PostgresTarget } from "#src/infra/postgres/assigned.ts"
import { setAside } from "#src/infra/postgres/failover.ts"
import { serverFolders } from "#src/infra/postgres/folders.ts"
import { Hydrations } from "#src/infra/postgres/Hydrations.ts"
import { type PostgresServer, PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import {
  askFollowers,
  type Follower,
  makeStandbyFill,
  replicaNumbers,
  slotOf
} from "#src/infra/postgres/standby.ts"
import { retryable, serverCare } from "./postgres-server.ts"
import {
  type Act,
  type DatabaseResource,
  lineageOf,
  patience,
  ReplicaOptions,
  type Seen,
  standbyLook,
  standbyOf
} from "./standby.ts"

/** Between looks: a primary that is lost is missed so much later. */
const watchMs = 15_000
/** Folders of failed primaries that are kept at most. */
const keptFolders = 2

export const replicaCare = Effect.gen(function* () {
  const servers = yield* PostgresServers
  const hydrations = yield* Hydrations
  const care = yield* serverCare
  const fill = yield* makeStandbyFill
  const options = yield* ReplicaOptions
  const { dataDir } = yield* AppConfig
  const { inspect, lookAt, positionOf } = yield* standbyLook
  const { dirOf } = serverFolders(dataDir)

  const followersOf = Effect.fnUntraced(function* (uid: string) {
    const endpoint = yield* retryable(servers.endpoint(uid))
    if (Option.isNone(endpoint)) return []
    return yield* retryable(externalCall("postgres.followers", "read")(askFollowers(endpoint.value)))
  })

  /** What is around the primary and not wanted any more. */
  const leftovers = Effect.fnUntraced(function* (
    { uid, spec }: DatabaseResource,
    followers: ReadonlyArray<Follower>
  ) {
    const now = yield* Clock.currentTimeMillis
    const folders = (yield* setAside(dirOf(uid)))
      .filter(({ at }, index) => index >= keptFolders || now - at > options.keepFailedMs)
      .map(({ folder }) => folder)
    const wanted = replicaNumbers.filter((number) => number <= spec.replicas).map(slotOf)
    const slots = followers.filter(({ slot }) => !wanted.includes(slot)).map(({ slot }) => slot)
    return { folders, slots }
  })

  const lookAll = Effect.fnUntraced(function* (resource: DatabaseResource, primary: PostgresServer) {
    const followers = yield* followersOf(resource.uid)
    const seen = yield* Effect.forEach(
      replicaNumbers,
      (number): Effect.Effect<Seen, Retryable> => lookAt(resource, primary, number, followers),
      { concurrency: replicaNumbers.length }
    )
    return { seen, ...(yield* leftovers(resource, followers)) }
  })

  /** Asked only while the primary is open. */
  const observe = Effect.fnUntraced(function* (resource: DatabaseResource, server: PostgresServer) {
    const { seen, folders, slots } = yield* lookAll(resource, server)
    const maintenance = seen.flatMap(
      ({ number, due }): ReadonlyArray<Difference> =>
        due === undefined ? [] : [{ field: `/replicas/${number}`, message: due.message }]
    )
    if (slots.length > 0)
      maintenance.push({ field: "/replicas", message: "log is kept for standbys that are gone" })
    if (folders.length > 0)
      maintenance.push({ field: "/failed", message: "a data folder was set aside long ago" })
    const polls = seen.flatMap(({ pollAfter }) => (pollAfter === undefined ? [] : [pollAfter]))
    return {
      kills: Object.fromEntries(seen.map(({ number, kills = 0 }) => [number, kills])),
      news: seen.flatMap(({ news }) => (news === undefined ? [] : [news]))[0],
      replicas: seen.flatMap(({ replica }) => (replica === undefined ? [] : [replica])),
      maintenance,
      ...(resource.spec.replicas === 0 ? {} : { pollAfter: Math.min(watchMs, ...polls) })
    }
  })

  const take = Effect.fnUntraced(function* (
    resource: DatabaseResource,
    era: number,
    number: number,
    act: Act
  ) {
    const subject = standbyOf(resource, number)
    const target: PostgresTarget = { uid: subject.uid, fence: resource.fence }
    const primary: PostgresTarget = { uid: resource.uid, fence: resource.fence }
    yield* servers.claim(target)
    switch (act) {
      case "remove": {
        yield* hydrations.cancel(target)
        return yield* care.remove(target)
      }
      case "mend": {
        const found = yield* servers.inspect(subject.uid, patience)
        if (Option.isSome(found)) yield* care.outerStep(subject, found.value)
        return
      }
      case "copy": {
        yield* servers.dropData(target, {
          lineage: lineageOf(resource),
          era,
          credentialVersion: resource.spec.credentialVersion
        })
        yield* servers.makeSlot(primary, slotOf(number), true)
        return yield* hydrations.begin(target, { owner: resource.orgId, first: false }, (run) =>
          fill(resource.uid, run)
        )
      }
      case "slot":
        return yield* servers.makeSlot(primary, slotOf(number), false)
      case "note alone":
        return yield* servers.noteAlone(target, yield* Clock.currentTimeMillis)
      case "note together":
        return yield* servers.noteTogether(target, era)
      case "disconnect":
        return yield* servers.disconnect(target, resource.spec.credentialVersion)
      case "claim":
        return
    }
  })

  /** One step for each standby, whatever becomes of the others; then fails if any did. */
  const step = Effect.fnUntraced(function* (resource: DatabaseResource, server: PostgresServer) {
    const { seen, folders, slots } = yield* lookAll(resource, server)
    const primary: PostgresTarget = { uid: resource.uid, fence: resource.fence }
    const faults: Array<string> = []
    const attempt = (what: string, effect: Effect.Effect<void, { readonly message: string }>) =>
      Effect.catch(effect, ({ message }) => Effect.sync(() => void faults.push(`${what}: ${message}`)))
    for (const { number, due } of seen) {
      if (due !== undefined) yield* attempt(`Standby ${number}`, take(resource, server.era, number, due.act))
    }
    if (slots.length > 0)
      yield* attempt("Log kept for standbys that are gone", servers.dropSlots(primary, slots))
    if (folders.length > 0) yield* attempt("Data folders set aside", servers.removeSetAside(primary, folders))
    if (faults.length > 0)
      return yield* new Retryable({ reason: "ReplicaFailing", message: faults.join("; ") })
  })

  const remains = Effect.fnUntraced(function* (uid: string) {
    for (const number of replicaNumbers) if (Option.isSome(yield* inspect(uid, number))) return true
    return false
  })
  const remove = Effect.fnUntraced(function* (resource: DatabaseResource) {
    for (const number of replicaNumbers) {
      if (Option.isSome(yield* inspect(resource.uid, number)))
        yield* retryable(take(resource, 0, number, "remove"))
    }
  })

  return { inspect, observe, positionOf, remains, remove, step }
})
