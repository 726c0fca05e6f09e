/**
 * Looking at one standby of a database: what it does, how far it is behind, and which act is due, if any. Acts are taken
 * by `replicas.ts`.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { DatabaseFacts, DatabaseReplica, DatabaseSpec, DatabaseStatus } from "#schemas/database.ts"
import { AppConfig } from "#src/config.ts"
import { externalCall } from "#src/engine/external-call.ts"
import type { Resource, Retryable } from "#src/engine/Reconciler.ts"
import { type Hydration, Hydrations, waitsForTurn } from "#src/infra/postgres/Hydrations.ts"
import { type PostgresServer, PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { scramMatches } from "#src/infra/postgres/scram.ts"
import {
  askLog,
  askPosition,
  type Follower,
  slotOf,
  standbyKey,
  whyNever
} from "#src/infra/postgres/standby.ts"
import { retryable, type ServerWanted, serverCare } from "./postgres-server.ts"

export type DatabaseResource = Resource<DatabaseSpec, DatabaseStatus, DatabaseFacts>

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
/** In this time a standby has replayed what it has, and has asked its primary several times. */
const soonMs = 5_000
/** Starts in a row that failed, after which the data counts as damaged. */
export const damagedAfter = 3

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

export type Act =
  | "remove"
  | "claim"
  | "mend"
  | "copy"
  | "slot"
  | "note alone"
  | "note together"
  | "disconnect"
export interface Seen {
  readonly number: number
  readonly replica?: DatabaseReplica
  readonly due?: { readonly act: Act; readonly message: string }
  readonly pollAfter?: number
  /** Processes of it that the kernel ended for its memory limit. */
  readonly kills?: number
  /** What is told of that. */
  readonly news?: { readonly reason: string; readonly message: string }
}

/** The parts of `Seen` that depend on what is found. */
interface Finding {
  /** It runs, and should have found its primary by now. */
  readonly alone?: boolean
  readonly state?: DatabaseReplica["state"]
  readonly problem?: string
  readonly due?: { readonly act: Act; readonly message: string }
  readonly pollAfter?: number
}

export const standbyLook = Effect.gen(function* () {
  const servers = yield* PostgresServers
  const hydrations = yield* Hydrations
  const care = yield* serverCare
  const options = yield* ReplicaOptions
  const { managedHost } = yield* AppConfig

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
    // One that has just connected may be refused yet, which is no sign that it follows.
    if (follower.connection !== null && follower.connection !== "startup") {
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
      : {
          state: now - aloneSince > 10_000 ? "down" : state,
          problem,
          pollAfter: 2_000,
          alone: running && now - aloneSince > soonMs
        }
  }

  /** Why it is of no use to wait for it; undefined: it is, or nobody can tell. */
  const neverFollows = Effect.fnUntraced(function* (uid: string, number: number, before: boolean) {
    const endpoint = yield* retryable(servers.endpoint(uid))
    const position = yield* positionOf(standbyKey(uid, number))
    if (Option.isNone(endpoint) || Option.isNone(position)) return undefined
    return whyNever(
      yield* retryable(externalCall("postgres.log", "read")(askLog(endpoint.value))),
      position.value,
      before
    )
  })

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
        const why =
          finding.alone === true ? yield* neverFollows(uid, number, found.era < primary.era) : undefined
        if (why !== undefined)
          return { state: "down", problem: `It cannot follow: ${why}`, due: { act: "copy", message: why } }
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
    const { state = "down", problem = null, alone: _, ...rest } = yield* find
    const port = found?.port ?? null
    const before = resource.status?.replicas?.find((one) => one.number === number)
    const lagBytes = coarse(follower?.lagBytes ?? null, 1 << 20, before?.lagBytes)
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
          : coarse(Option.getOrUndefined(position)?.ageSeconds ?? null, 10, before?.lagSeconds),
      problem
    }
    const news =
      found === undefined
        ? undefined
        : care.memoryNews(
            standbyOf(resource, number),
            found,
            resource.status?.memoryKills?.[number],
            `standby ${number}`
          )
    const seen: Seen = {
      number,
      replica,
      kills: found?.held.kills ?? 0,
      ...(news === undefined ? {} : { news }),
      ...rest
    }
    return seen
  })

  /** None: it does not tell. */
  const positionOf = Effect.fnUntraced(function* (key: string) {
    const endpoint = yield* retryable(servers.endpoint(key))
    if (Option.isNone(endpoint)) return Option.none()
    return yield* externalCall(
      "postgres.position",
      "read"
    )(askPosition(endpoint.value)).pipe(
      Effect.timeoutOption(patience),
      Effect.catch(() => Effect.succeedNone)
    )
  })

  return { inspect, lookAt, positionOf }
})

/**
 * In steps of the unit doubled again and again; 0: less than the unit. A status that told every byte would be a change of
 * the database at every look. What was told is told again until it is too low, or four times too high.
 */
export const coarse = (
  value: number | null,
  unit: number,
  told: number | null | undefined
): number | null => {
  if (value === null) return null
  if (typeof told === "number" && told > 0 && value <= told && value > told / 4) return told
  return value < unit ? 0 : unit * 2 ** Math.ceil(Math.log2(value / unit))
}

/** A copy that failed is tried again, ever more rarely. */
const retryAt = ({ state, attempt, heartbeatAt }: Hydration): number =>
  state === "failed" ? heartbeatAt + Math.min(300_000, 1_000 * 2 ** Math.min(attempt, 10)) : 0

const progressText = ({ step, doneBytes, totalBytes }: Hydration): string =>
  step === "copy" && totalBytes > 0
    ? `Copied ${Math.floor((doneBytes / totalBytes) * 100)} % of ${Math.ceil(totalBytes / 1_048_576)} MiB`
    : step === "queued"
      ? waitsForTurn
      : "Is about to be copied"
