/**
 * What becomes of an app next, as a function of all that is known of it. It decides and does nothing.
 *
 * Requests go to healthy instances of one revision: the serving one. Another revision is started beside it, takes the
 * requests once as many of its instances are healthy as there are to be, and is given up when it does not get there;
 * the instances before it are then drained and ended, or stay. An instance is one container that is started once.
 */
import { isDeepStrictEqual } from "node:util"
import type { AppSpec } from "#schemas/app.ts"
import type { AppRow, AppState, Instance, SiteState } from "#src/apps/app-state.ts"
import type { AppOptions } from "#src/apps/options.ts"
import type { Container } from "#src/infra/containers/ContainerEngine.ts"

/** A deployment with everything that its instances are started with. */
export interface Revision {
  readonly revision: string
  readonly deployment: string
}

export interface SeenInstance {
  readonly instance: Instance
  /** Undefined: there is no such container. */
  readonly container: Container | undefined
  /** Undefined: nobody asked. Null: it answered well; otherwise why not. */
  readonly health: string | null | undefined
  /** Somebody keeps what it prints. */
  readonly followed: boolean
  /** Connections of this machine to it. */
  readonly connections: number
}

export interface Situation {
  readonly now: number
  readonly spec: AppSpec
  readonly state: AppState | undefined
  /** What the specification asks for; undefined: nothing was deployed. */
  readonly target: Revision | undefined
  readonly seen: ReadonlyArray<SeenInstance>
  /** Undefined: the environment has no address yet. */
  readonly site: SiteState | undefined
  readonly options: AppOptions
}

export interface Ended {
  readonly at: Date
  readonly exitCode: number | null
  readonly reason: string
}

export type Step =
  | { readonly do: "startEngine" }
  | { readonly do: "begin" | "fallAsleep" | "wake" | "steady" | "active" | "paused" | "stopped" }
  | { readonly do: "add"; readonly of: Revision }
  | { readonly do: "make" | "start" | "follow" | "healthy" | "kill" | "remove"; readonly instance: Instance }
  | { readonly do: "started"; readonly instance: Instance; readonly address: string; readonly at: Date }
  | { readonly do: "ended"; readonly instance: Instance; readonly how: Ended; readonly crash: boolean }
  | {
      readonly do: "stop"
      readonly instances: ReadonlyArray<Instance>
      readonly why: string
      readonly crash: boolean
    }
  | { readonly do: "pause" | "unpause"; readonly instances: ReadonlyArray<Instance> }
  | { readonly do: "reject"; readonly what: Revision; readonly error: string }
  | {
      readonly do: "serve"
      readonly what: Revision
      readonly target: { readonly address: string; readonly port: number } | null
      readonly instances: ReadonlyArray<Instance>
      /** Whether the edge is to be told: an origin of the environment's own takes the requests otherwise. */
      readonly route: boolean
    }
  /** Nothing to do but to look again. */
  | { readonly do: "wait"; readonly reason: string; readonly message: string; readonly forMs: number }
  | { readonly do: "rest"; readonly forMs: number }

const quick = 300

export const decide = (situation: Situation): Step => {
  const { state, seen, site, options } = situation
  if (state === undefined) return { do: "begin" }
  for (const one of seen) {
    const step = life(one, situation)
    if (step !== undefined) return step
  }
  const { row } = state
  const wanted = effective(situation)
  const live = seen.filter(({ instance }) => instance.state === "starting" || instance.state === "healthy")
  if (wanted === undefined) {
    const left = live.map(({ instance }) => instance)
    if (left.length > 0)
      return { do: "stop", instances: left, why: "Nothing of this app is to run", crash: false }
    return { do: "wait", reason: "NotDeployed", message: "Nothing was deployed yet", forMs: options.lookMs }
  }
  const abandoned = live.filter(
    ({ instance }) => instance.state === "starting" && instance.revision !== wanted.revision
  )
  if (abandoned.length > 0)
    return {
      do: "stop",
      instances: abandoned.map(({ instance }) => instance),
      why: "Another version is to run",
      crash: false
    }
  const isRolling = wanted.revision !== row.servingRevision
  const asleep = row.asleepAt !== null || site?.asleep === true
  const waking =
    asleep &&
    (site?.wakeRequested === true ||
      site?.scalesToZero !== true ||
      site.origin !== null ||
      isRolling ||
      row.asleepAt === null)
  if (asleep && !waking) return sleeping(situation, live)
  return awake(situation, wanted, live, isRolling, asleep)
}

/** What the specification asks for, or what serves if that was given up. */
const effective = ({ state, target }: Situation): Revision | undefined => {
  if (state === undefined || target === undefined) return undefined
  const { rejectedRevision, servingRevision, servingDeployment } = state.row
  if (rejectedRevision !== target.revision) return target
  return servingRevision === null || servingDeployment === null
    ? undefined
    : { revision: servingRevision, deployment: servingDeployment }
}

/** Of the instances that were started together the first one that ends by itself counts. */
export const isFirstOfRound = ({ nextStartAt }: AppRow, { madeAt }: Instance): boolean =>
  nextStartAt === null || madeAt >= nextStartAt

/** What an instance needs whatever the app is to do. */
const life = (one: SeenInstance, situation: Situation): Step | undefined => {
  const { now, options } = situation
  const { instance, container, followed, connections } = one
  const { state } = instance
  if (state === "ended") {
    if (container === undefined || instance.logComplete) return { do: "remove", instance }
    if (now > (instance.endedAt?.getTime() ?? 0) + options.captureMs) return { do: "remove", instance }
    return followed ? undefined : { do: "follow", instance }
  }
  const wasAsked = state === "stopping" || state === "draining"
  // Of a version that is to run no more nothing is started again.
  const isCrash = !wasAsked && instance.revision === effective(situation)?.revision
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
  if (container.state === "running" && !followed) return { do: "follow", instance }
  if (state === "stopping" && now >= (instance.stopAt?.getTime() ?? 0) + options.graceMs)
    return { do: "kill", instance }
  if (state === "draining") {
    const since = now - (instance.drainAt?.getTime() ?? 0)
    if (since >= options.drainMs || (connections === 0 && since >= options.settleMs))
      return { do: "stop", instances: [instance], why: "Another version took its place", crash: false }
  }
  return undefined
}
const ended = (instance: Instance, how: Ended, crash: boolean): Step => ({
  do: "ended",
  instance,
  how,
  crash
})

const sleeping = ({ now, spec, state, options }: Situation, live: ReadonlyArray<SeenInstance>): Step => {
  if (state === undefined) return { do: "begin" }
  const { power, activeAt, asleepAt } = state.row
  const instances = live.map(({ instance }) => instance)
  if (power === "awake") {
    // What came in the last moment before requests were held.
    if (live.some(({ connections }) => connections > 0)) return { do: "wake" }
    const settledAt = (asleepAt?.getTime() ?? 0) + options.settleMs
    if (now < settledAt) return { do: "rest", forMs: settledAt - now }
    const running = live.filter(({ container }) => container?.state === "running" && !container.paused)
    if (running.length > 0) return { do: "pause", instances: running.map(({ instance }) => instance) }
    return { do: "paused" }
  }
  const stopAt = activeAt.getTime() + Math.max(spec.idle.stopSeconds, spec.idle.pauseSeconds) * 1_000
  if (power === "paused") {
    if (now >= stopAt) return { do: "stopped" }
    return { do: "rest", forMs: Math.max(quick, Math.min(60_000, stopAt - now)) }
  }
  if (instances.length > 0) return { do: "stop", instances, why: "Nobody used it", crash: false }
  return { do: "rest", forMs: 3_600_000 }
}

const awake = (
  situation: Situation,
  wanted: Revision,
  live: ReadonlyArray<SeenInstance>,
  isRolling: boolean,
  asleep: boolean
): Step => {
  const { now, spec, state, site, options } = situation
  if (state === undefined) return { do: "begin" }
  const { row } = state
  const isKnown = row.startedRevision === wanted.revision
  const crashes = isKnown ? row.crashes : 0
  const current = live.filter(({ instance }) => instance.revision === wanted.revision)
  const paused = live.filter(({ container }) => container?.paused === true)
  if (paused.length > 0) return { do: "unpause", instances: paused.map(({ instance }) => instance) }

  if (isRolling && crashes >= options.rollCrashes)
    return { do: "reject", what: wanted, error: `Its instances ended ${crashes} times in a row` }
  for (const one of current) {
    const step = starting(situation, one, wanted, isRolling)
    if (step !== undefined) return step
  }
  const healthy = current.filter(({ instance }) => instance.state === "healthy")
  if (site !== undefined && (isRolling ? healthy.length >= spec.instances : true)) {
    const chosen = healthy.slice(0, spec.instances)
    const [first] = chosen
    const { address = null, port = spec.port } = first?.instance ?? {}
    const target = address === null ? null : { address, port }
    const route = site.origin === null
    const isServed =
      !isRolling &&
      (!route || (site.appUid !== null && isDeepStrictEqual(site.target ?? null, target))) &&
      chosen.length === live.filter(({ instance }) => instance.state === "healthy").length
    if (!isServed)
      return { do: "serve", what: wanted, target, instances: chosen.map(({ instance }) => instance), route }
  }
  if (current.length < spec.instances) {
    const at = (isKnown ? row.nextStartAt?.getTime() : undefined) ?? 0
    if (now >= at) return { do: "add", of: wanted }
    if (healthy.length === 0)
      return {
        do: "wait",
        reason: crashes >= options.rollCrashes ? "CrashLooping" : "InstancesStarting",
        message: `Its instances ended ${crashes} times in a row; the next one is started in ${Math.ceil((at - now) / 1_000)} s`,
        forMs: at - now
      }
    return { do: "rest", forMs: at - now }
  }
  const isUp = healthy.length >= spec.instances
  if (asleep && isUp && !isRolling) return { do: "wake" }
  if (!isUp || isRolling) {
    const message =
      site === undefined
        ? "The environment has no address yet"
        : current.flatMap(({ health }) => (typeof health === "string" ? [health] : []))[0]
    return {
      do: "wait",
      reason: isRolling && row.servingRevision !== null ? "Rolling" : "InstancesStarting",
      message: message ?? "Its instances are being started",
      forMs: quick
    }
  }
  return steady(situation, live)
}

const starting = (
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

/** All is as it should be. */
const steady = ({ now, spec, state, site, options }: Situation, live: ReadonlyArray<SeenInstance>): Step => {
  if (state === undefined) return { do: "begin" }
  const { row, instances } = state
  const youngest = Math.max(0, ...live.map(({ instance }) => instance.healthyAt?.getTime() ?? 0))
  if (row.crashes > 0 && now > youngest + options.steadyMs) return { do: "steady" }
  // Instances that end by and by are looked at until they are gone.
  const isLeaving = instances.some((one) => one.state !== "healthy")
  if (site?.scalesToZero === true && site.origin === null) {
    const busy = live.some(({ connections }) => connections > 0)
    const lastAt = Math.max(row.activeAt.getTime(), (site.lastMinute?.getTime() ?? -60_000) + 60_000)
    const pauseAt = lastAt + spec.idle.pauseSeconds * 1_000
    if (busy && now > row.activeAt.getTime() + 30_000) return { do: "active" }
    if (!busy && !isLeaving && now >= pauseAt) return { do: "fallAsleep" }
  }
  return { do: "rest", forMs: isLeaving ? quick : options.lookMs }
}
