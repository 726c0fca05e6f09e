/** The engine's times and bounds. Each says which trouble it prevents. */
import { randomUUID } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { localRegion } from "#schemas/catalog.ts"

export interface EngineOptions {
  /** How many reconciles run at once in this process: bounds memory and open connections. */
  readonly concurrency: number
  /** Share of a kind's room that one organization may hold: one tenant's slow servers leave room for others. */
  readonly orgShare: number
  /** Milliseconds a lease lasts without a heartbeat: how long work rests after a crash. */
  readonly leaseMs: number
  /** Milliseconds between heartbeats: three may fail before a lease ends. */
  readonly heartbeatMs: number
  /** Milliseconds between looks at the queue when nothing announces work: a lost notification costs this much. */
  readonly pollMs: number
  /** Milliseconds that running reconciles get to end when the process stops. */
  readonly drainMs: number
  /** First and longest delay of the backoff, in milliseconds. */
  readonly backoffMs: readonly [number, number]
  /** Tries in a row without progress after which a resource counts as stalled and is tried rarely. */
  readonly stallAfter: number
  /** Milliseconds between the tries of a stalled resource, with jitter. */
  readonly stalledRetryMs: number
  /** Milliseconds until a waiting resource looks again even if nobody woke it. */
  readonly waitMs: number
  /**
   * Milliseconds after which, at the latest, the queue offers what is looked at from memory: should every process have lost
   * sight of it, it is looked at all the same.
   */
  readonly keptForMs: number
  /** Steps in one reconcile: a reconciler that never ends must not hold its room for ever. */
  readonly maxSteps: number
  /** Milliseconds one reconcile may take before it is interrupted and counted as failed. */
  readonly runMs: number
}

export const defaults: EngineOptions = {
  concurrency: 512,
  orgShare: 0.75,
  leaseMs: 30_000,
  heartbeatMs: 8_000,
  pollMs: 15_000,
  drainMs: 10_000,
  backoffMs: [1_000, 300_000],
  stallAfter: 8,
  stalledRetryMs: 900_000,
  waitMs: 15_000,
  keptForMs: 86_400_000,
  maxSteps: 20,
  runMs: 120_000
}

/** The region that this process serves: work on what lies on a machine of another region is left to processes there. */
export const ServedRegion = Context.Reference<string>("svc/engine/ServedRegion", {
  defaultValue: () => localRegion
})

/** By which the others know a process that runs reconciles: a UUID of its own for every start. */
export const NewProcessId = Context.Reference<Effect.Effect<string>>("svc/engine/NewProcessId", {
  defaultValue: () => Effect.sync(() => randomUUID())
})

export const EngineOptions = Context.Reference<EngineOptions>("svc/engine/EngineOptions", {
  defaultValue: () => defaults
})
