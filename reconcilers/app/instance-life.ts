/** What one instance needs next, from its container to its end. */
import type { Instance } from "#src/apps/app-state.ts"
import type { Ended, Revision, SeenInstance, Situation, Step } from "./situation.ts"

/** What an instance needs whatever the app is to do. */
export const life = (
  one: SeenInstance,
  { now, spec, options }: Situation,
  /** What is to run; undefined: nothing. */
  revision: string | undefined
): Step | undefined => {
  const { instance, container, connections } = one
  const { state } = instance
  if (state === "ended") return undefined
  const wasAsked = state === "stopping" || state === "draining"
  // Of a version that is to run no more nothing is started again.
  const isCrash = !wasAsked && instance.revision === revision
  // No signal reaches what never ran.
  if (wasAsked && container?.state === "created")
    return ended(instance, { at: new Date(now), exitCode: null, reason: "It was not started" }, false)
  if (container === undefined) {
    if (instance.containerMade && instance.address !== null)
      return ended(instance, { at: new Date(now), exitCode: null, reason: "Its container is gone" }, isCrash)
    return wasAsked
      ? ended(instance, { at: new Date(now), exitCode: null, reason: "It was not started" }, false)
      : undefined
  }
  if (container.state === "exited") {
    const reason = container.outOfMemory
      ? "It needed more memory than it may have"
      : `It ended with exit code ${container.exitCode}`
    const at = container.finishedAt ?? new Date(now)
    return ended(instance, { at, exitCode: container.exitCode, reason }, isCrash)
  }
  if (state === "stopping" && now >= (instance.stopAt?.getTime() ?? 0) + options.graceMs)
    return { do: "kill", instance }
  if (state === "draining") {
    const since = now - (instance.drainAt?.getTime() ?? 0)
    if (since >= options.drainMs || (connections === 0 && since >= options.settleMs))
      return { do: "stop", instances: [instance], why: "Another version took its place", crash: false }
  }
  return state === "healthy" ? checked(one, spec.healthCheck.failures, isCrash) : undefined
}

/** What is done once nothing else is due: what it prints is kept, and what is left of one that has ended is removed. */
export const keeping = (
  { instance, container, followed }: SeenInstance,
  { now, options }: Situation
): Step | undefined => {
  if (instance.state !== "ended")
    return container?.state === "running" && !followed ? { do: "follow", instance } : undefined
  const captureEnds = (instance.endedAt?.getTime() ?? 0) + options.captureMs
  if (container === undefined || instance.logComplete || now > captureEnds) return { do: "remove", instance }
  return followed ? undefined : { do: "follow", instance }
}

/** Each check counts once. One that fails at last has another take its place, later the more often that happens. */
const checked = (
  { instance, health, askedAt }: SeenInstance,
  failures: number,
  isCrash: boolean
): Step | undefined => {
  const { checkedAt, unanswered: before } = instance
  if (health === undefined || (checkedAt !== null && askedAt <= checkedAt.getTime())) return undefined
  const unanswered = health === null ? 0 : Math.min(failures, before + 1)
  if (unanswered === before) return undefined
  const at = new Date(askedAt)
  return { do: "checked", instance, at, unanswered, crash: isCrash && unanswered === failures }
}

const ended = (instance: Instance, how: Ended, crash: boolean): Step => ({
  do: "ended",
  instance,
  how,
  crash
})

/** Of an instance that is to become healthy; undefined: nothing yet. */
export const starting = (
  { now, spec }: Situation,
  { instance, container, health }: SeenInstance,
  wanted: Revision,
  isRolling: boolean
): Step | undefined => {
  if (instance.state !== "starting") return undefined
  const since = (instance.startedAt ?? instance.madeAt).getTime()
  if (now > since + spec.healthCheck.startSeconds * 1_000) {
    const why = `It did not get healthy within ${spec.healthCheck.startSeconds} s${typeof health === "string" ? `: ${health}` : ""}`
    return isRolling
      ? { do: "reject", what: wanted, error: why }
      : { do: "stop", instances: [instance], why, crash: true }
  }
  if (container === undefined) return { do: "make", instance }
  if (container.state === "created") return { do: "start", instance }
  const { address, startedAt } = container
  if (address !== undefined && instance.address !== address)
    return { do: "started", instance, address, at: startedAt ?? new Date(now) }
  return health === null ? { do: "healthy", instance } : undefined
}
