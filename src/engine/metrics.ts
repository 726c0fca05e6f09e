/** What the engine counts. Names follow Prometheus' conventions; times are in seconds there. */
import * as Context from "effect/Context"
import * as Metric from "effect/Metric"
import type { RunResult } from "./report.ts"
import type { Claimed, QueueStats } from "./WorkStore.ts"

const seconds = Metric.boundariesFromIterable([
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60
])

const duration = Metric.histogram("svc_reconcile_duration_seconds", {
  description: "Time one reconcile took, by kind and outcome",
  boundaries: seconds
})
const lateness = Metric.histogram("svc_reconcile_late_seconds", {
  description: "Time between becoming due and being claimed, by kind",
  boundaries: seconds
})
const drift = Metric.counter("svc_drift_found_total", {
  description: "Drift found, by kind",
  incremental: true
})
const stored = Metric.counter("svc_reconcile_recorded_total", {
  description: "Results stored",
  incremental: true
})
const refused = Metric.counter("svc_reconcile_fenced_total", {
  description: "Results that were not stored because their lease had ended",
  incremental: true
})
const lost = Metric.counter("svc_lease_lost_total", {
  description: "Leases lost while running",
  incremental: true
})

const depth = Metric.gauge("svc_queue_depth", { description: "Resources in the queue, by kind" })
const due = Metric.gauge("svc_queue_due", { description: "Resources that are due and unclaimed, by kind" })
const oldest = Metric.gauge("svc_queue_oldest_due_seconds", {
  description: "How long the oldest due resource has waited, by kind"
})

const kept = Metric.gauge("svc_looks_kept", {
  description: "Settled resources that this process looks at, from memory and without a lease"
})

/** Metrics with their attributes bound, so that the hot path builds no objects. */
const bound = <Input, State>(metric: Metric.Metric<Input, State>) => {
  const cache = new Map<string, Metric.Metric<Input, State>>()
  return (kind: string, outcome?: string) => {
    const key = outcome === undefined ? kind : `${kind} ${outcome}`
    const known = cache.get(key)
    if (known !== undefined) return known
    const made = Metric.withAttributes(metric, outcome === undefined ? { kind } : { kind, outcome })
    cache.set(key, made)
    return made
  }
}
const durationOf = bound(duration)
const latenessOf = bound(lateness)
const driftOf = bound(drift)
const depthOf = bound(depth)
const dueOf = bound(due)
const oldestOf = bound(oldest)

/** The process-wide registry: these are counted from callbacks, outside any fiber. */
const registry = Context.empty()
const run = <Input, State>(metric: Metric.Metric<Input, State>, input: Input): void =>
  metric.updateUnsafe(input, registry)

export const started = (claimed: Claimed): void => run(latenessOf(claimed.kind), claimed.lateBy / 1000)
export const ended = (kind: string, result: RunResult, ms: number): void => {
  run(durationOf(kind, result.outcome), ms / 1000)
  if (result.driftFound) run(driftOf(kind), 1)
}
export const recorded = (count: number): void => run(stored, count)
export const fenced = (): void => run(refused, 1)
export const looksKept = (count: number): void => run(kept, count)
export const leaseLost = (): void => run(lost, 1)
export const queue = (stats: ReadonlyArray<QueueStats>): void => {
  for (const one of stats) {
    run(depthOf(one.kind), one.depth)
    run(dueOf(one.kind), one.due)
    run(oldestOf(one.kind), one.oldestDueMs / 1000)
  }
}
