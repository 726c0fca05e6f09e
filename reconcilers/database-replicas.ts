/**
 * The standbys of a database: servers beside its own, named by its uid, that begin as copies of it and follow its log.
 * They are looked at when nothing is wrong with the primary, and whatever is wrong with them leaves the database ready.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { DatabaseReplica, DatabaseSpec, DatabaseStatus } from "#schemas/database.ts"
import { AppConfig } from "#src/config.ts"
import { outside } from "#src/engine/outside.ts"
import type { Difference, Resource, Retryable } from "#src/engine/Reconciler.ts"
import { type Hydration, Hydrations } from "#src/infra/Hydrations.ts"
import { type PostgresServer, PostgresServers, type PostgresTarget } from "#src/infra/PostgresServers.ts"
import { setAside } from "#src/infra/postgres-failover.ts"
import { serverFolders } from "#src/infra/postgres-folders.ts"
import {
  askFollowers,
  askPosition,
  type Follower,
  makeStandbyFill,
  replicaNumbers,
  slotOf,
  standbyKey
} from "#src/infra/postgres-standby.ts"
import { scramMatches } from "#src/infra/scram.ts"
import { retryable, type ServerWanted, serverCare } from "./postgres-server.ts"

export type DatabaseResource = Resource<DatabaseSpec, DatabaseStatus>

export interface ReplicaOptions {
  /** A standby that was without its primary's log for so long, while that was there, is copied again. */
  readonly aloneMs: number
  /** How long a data folder is kept that a failover has set aside. */
  readonly keepFailedMs: number
  /** From when on a standby counts as lagging. */
  readonly lagBytes: number
}
export const ReplicaOptions = Context.Reference<ReplicaOptions>("svc/reconcilers/ReplicaOptions", {
  defaultValue: () => ({ aloneMs: 300_000, keepFailedMs: 7 * 86_400_000, lagBytes: 64 << 20 })
})

/** A server that hangs is told from one that works in this time, and holds up nobody else. */
export const patience = "3 seconds"
/** Between looks: a primary that is lost is missed so much later. */
const watchMs = 15_000
/** Starts in a row that failed, after which the data counts as damaged. */
export const damagedAfter = 3
/** Folders of failed primaries that are kept at most. */
const keptFolders = 2

export const standbyOf = ({ orgId, uid, fence, spec }: DatabaseResource, number: number): ServerWanted => ({
  orgId,
  uid: standbyKey(uid, number),
  fence,
  sku: spec.sku,
  archived: false,
  follows: { uid, slot: slotOf(number) }
})

/** Which history the data of a database, and of its standbys, should belong to. */
export const lineageOf = ({ uid, spec }: DatabaseResource): string => spec.lineage ?? uid

type Act = "remove" | "claim" | "mend" | "copy" | "slot" | "note alone" | "note together" | "disconnect"
interface Seen {
  readonly number: number
  readonly replica?: DatabaseReplica
  readonly due?: { readonly act: Act; readonly message: string }
  readonly pollAfter?: number
}

/** The parts of `Seen` that depend on what is found. */
interface Finding {
  readonly state?: DatabaseReplica["state"]
  readonly problem?: string
  readonly due?: { readonly act: Act; readonly message: string }
  readonly pollAfter?: number
}

export const replicaCare = Effect.gen(function* () {
  const servers = yield* PostgresServers
  const hydrations = yield* Hydrations
  const care = yield* serverCare
  const fill = yield* makeStandbyFill
  const options = yield* ReplicaOptions
  const { managedHost, dataDir } = yield* AppConfig
  const { dirOf } = serverFolders(dataDir)

  const inspect = (uid: string, number: number) =>
    retryable(servers.inspect(standbyKey(uid, number), patience))

  /** What is to be done about a server whose files and process are as they should be. */
  const following = (
    server: PostgresServer,
    primary: PostgresServer,
    follower: Follower | undefined,
    now: number
  ): Finding => {
    const { process, aloneSince, era } = server
    const running = process._tag === "Running"
    if (running && !process.live.recovering)
      return { due: { act: "copy", message: "it does not follow any more, but takes writes" } }
    if (follower === undefined)
      return { due: { act: "slot", message: "the primary keeps no log for it" }, state: "catching_up" }
    if (follower.lost)
      return { due: { act: "copy", message: "the log that it needs is gone" }, problem: "It fell off" }
    if (follower.connection !== null) {
      return {
        state: follower.connection === "streaming" ? "streaming" : "catching_up",
        ...(follower.connection === "streaming" ? {} : { pollAfter: 2_000 }),
        ...(aloneSince === undefined && era === primary.era
          ? {}
          : { due: { act: "note together" as const, message: "it follows again" } })
      }
    }
    const state = running ? "catching_up" : "down"
    if (aloneSince === undefined)
      return { state, due: { act: "note alone", message: "it does not follow the primary" } }
    const problem = `It does not follow the primary since ${new Date(aloneSince).toISOString()}`
    return now - aloneSince > options.aloneMs
      ? { state: "down", problem, due: { act: "copy", message: "it does not come back" } }
      : { state: now - aloneSince > 10_000 ? "down" : state, problem, pollAfter: 2_000 }
  }

  /** Whether a change of the password has reached a standby. */
  const knowsPassword = Effect.fnUntraced(function* (
    resource: DatabaseResource,
    { process }: PostgresServer
  ) {
    if (process._tag !== "Running" || process.live.verifier === null) return false
    return yield* scramMatches(process.live.verifier, yield* care.passwordOf(resource))
  })

  const lookAt = Effect.fnUntraced(function* (
    resource: DatabaseResource,
    primary: PostgresServer,
    number: number,
    followers: ReadonlyArray<Follower>
  ) {
    const { uid, spec } = resource
    const found = Option.getOrUndefined(yield* inspect(uid, number))
    if (number > spec.replicas) {
      return found === undefined
        ? { number }
        : { number, due: { act: "remove" as const, message: "it is not wanted any more" } }
    }
    const follower = followers.find(({ slot }) => slot === slotOf(number))
    const now = yield* Clock.currentTimeMillis
    const find = Effect.gen(function* (): Effect.fn.Return<Finding, Retryable> {
      if (found === undefined) return { due: { act: "claim", message: "there is none" } }
      const hydration = yield* retryable(hydrations.inspect(standbyKey(uid, number)))
      if (hydration?.alive === true)
        return { state: "copying", problem: progressText(hydration), pollAfter: 1_000 }
      if (found.initialised && found.lineage !== lineageOf(resource))
        return { due: { act: "copy", message: "its data belongs to another history" } }
      const { startFailures } = found
      if (startFailures !== undefined && startFailures.count >= damagedAfter && found.initialised) {
        return { problem: startFailures.message, due: { act: "copy", message: "it cannot be started" } }
      }
      const faults = yield* care.outerFaults(standbyOf(resource, number), found)
      const fault = faults.find(
        ({ repair }) => found.initialised || (repair !== "data" && repair !== "start")
      )
      if (fault !== undefined) return { due: { act: "mend", message: `${fault.field} ${fault.message}` } }
      if (found.initialised) {
        const finding = following(found, primary, follower, now)
        if (finding.due !== undefined || found.credentialVersion === spec.credentialVersion) return finding
        return (yield* knowsPassword(resource, found))
          ? { ...finding, due: { act: "disconnect", message: "sessions are left from an older password" } }
          : { ...finding, pollAfter: 500 }
      }
      const wait = hydration === undefined ? 0 : retryAt(hydration) - now
      return {
        ...(hydration?.failure === undefined ? {} : { problem: hydration.failure.detail }),
        ...(wait > 0 ? { pollAfter: wait } : { due: { act: "copy", message: "it has no data" } })
      }
    })
    const { state = "down", problem = null, ...rest } = yield* find
    const port = found?.port ?? null
    const lagBytes = follower?.lagBytes ?? null
    const running = found?.process._tag === "Running" && port !== null
    const position = running && lagBytes !== 0 ? yield* positionOf(standbyKey(uid, number)) : Option.none()
    const replica: DatabaseReplica = {
      number,
      host: managedHost,
      port,
      state,
      lagBytes: state === "copying" ? null : lagBytes,
      lagSeconds:
        lagBytes === 0 && running
          ? 0
          : Option.match(position, {
              onNone: () => null,
              onSome: ({ ageSeconds }) => (ageSeconds === null ? null : Math.max(0, Math.floor(ageSeconds)))
            }),
      problem
    }
    const seen: Seen = { number, replica, ...rest }
    return seen
  })

  /** None: it does not tell. */
  const positionOf = Effect.fnUntraced(function* (key: string) {
    const endpoint = yield* retryable(servers.endpoint(key))
    if (Option.isNone(endpoint)) return Option.none()
    return yield* outside(
      "postgres.position",
      "read"
    )(askPosition(endpoint.value)).pipe(
      Effect.timeoutOption(patience),
      Effect.catch(() => Effect.succeedNone)
    )
  })

  const followersOf = Effect.fnUntraced(function* (uid: string) {
    const endpoint = yield* retryable(servers.endpoint(uid))
    if (Option.isNone(endpoint)) return []
    return yield* retryable(outside("postgres.followers", "read")(askFollowers(endpoint.value)))
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
    const upkeep = seen.flatMap(
      ({ number, due }): ReadonlyArray<Difference> =>
        due === undefined ? [] : [{ field: `/replicas/${number}`, message: due.message }]
    )
    if (slots.length > 0)
      upkeep.push({ field: "/replicas", message: "log is kept for standbys that are gone" })
    if (folders.length > 0) upkeep.push({ field: "/failed", message: "a data folder was set aside long ago" })
    const polls = seen.flatMap(({ pollAfter }) => (pollAfter === undefined ? [] : [pollAfter]))
    return {
      replicas: seen.flatMap(({ replica }) => (replica === undefined ? [] : [replica])),
      upkeep,
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
        return yield* hydrations.begin(target, (run) => fill(resource.uid, run))
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

  /** One step for each standby. What fails is tried again, and is no failure of the database. */
  const step = Effect.fnUntraced(function* (resource: DatabaseResource, server: PostgresServer) {
    const { seen, folders, slots } = yield* lookAll(resource, server)
    const primary: PostgresTarget = { uid: resource.uid, fence: resource.fence }
    const attempt = (effect: Effect.Effect<void, { readonly message: string }>) =>
      Effect.catch(effect, (error) =>
        Effect.logWarning("a standby could not be brought to what it should be", {
          database: resource.uid,
          error: error.message
        })
      )
    for (const { number, due } of seen) {
      if (due !== undefined) yield* attempt(take(resource, server.era, number, due.act))
    }
    if (slots.length > 0) yield* attempt(servers.dropSlots(primary, slots))
    if (folders.length > 0) yield* attempt(servers.removeSetAside(primary, folders))
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

/** A copy that failed is tried again, ever more rarely. */
const retryAt = ({ state, attempt, heartbeatAt }: Hydration): number =>
  state === "failed" ? heartbeatAt + Math.min(300_000, 1_000 * 2 ** Math.min(attempt, 10)) : 0

const progressText = ({ step, doneBytes, totalBytes }: Hydration): string =>
  step === "copy" && totalBytes > 0
    ? `Copied ${Math.floor((doneBytes / totalBytes) * 100)} % of ${Math.ceil(totalBytes / 1_048_576)} MiB`
    : step === "queued"
      ? "Waits for other copies to end"
      : "Is about to be copied"
