/**
 * What becomes of an app next, as a function of all that is known of it. It decides and does nothing.
 *
 * Requests go to healthy instances. Those of another revision take the places of the serving one's one by one: each is
 * started beside them, takes requests once it is healthy, and an older one is then drained and ended. The other revision
 * serves once it has all places, and is given up when one of its instances does not get healthy: the places that it had
 * are given back in the same way. An instance is one container that is started once.
 */
import { isDeepStrictEqual } from "node:util"
import type { AppSpec } from "#schemas/app.ts"
import type { AppRow, Instance } from "#src/apps/app-state.ts"
import type { Target } from "#src/edge/target.ts"
import { keeping, life, starting } from "./instance-life.ts"
import { mostInstances, scaling } from "./scaling.ts"
import type { Revision, SeenInstance, Situation, Step } from "./situation.ts"

const quick = 300

export const decide = (situation: Situation): Step => {
  const step = next(situation)
  if (step.do !== "wait" && step.do !== "rest") return step
  // An engine that fails at one of these, such as at removing a container, keeps the app from nothing else.
  for (const one of situation.seen) {
    const due = keeping(one, situation)
    if (due !== undefined) return due
  }
  return step
}

const next = (situation: Situation): Step => {
  const { state, seen, site, options } = situation
  if (state === undefined) return { do: "begin" }
  for (const one of seen) {
    const step = life(one, situation, effective(situation)?.revision)
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
  if (paused.length > 0) {
    const after = awake(situation, wanted, live.map(unpaused), isRolling, asleep)
    return { do: "unpause", instances: paused.map(({ instance }) => instance), wake: after.do === "wake" }
  }

  if (isRolling && crashes >= options.rollCrashes)
    return { do: "reject", what: wanted, error: `Its instances ended ${crashes} times in a row` }
  for (const one of current) {
    const step = starting(situation, one, wanted, isRolling)
    if (step !== undefined) return step
  }
  const { count, step: scale } = scaling(situation, asleep || isRolling)
  if (scale !== undefined) return scale

  const answers = ({ instance }: SeenInstance) =>
    spec.healthCheck.failures === 0 || instance.unanswered < spec.healthCheck.failures
  /** Those that answer come first: others leave once there are enough. */
  const healthyOf = (revision: (one: string) => boolean) =>
    live
      .filter(({ instance }) => instance.state === "healthy" && revision(instance.revision))
      .toSorted((one, other) => Number(answers(other)) - Number(answers(one)))
  const healthy = healthyOf((one) => one === wanted.revision)
  const former = healthyOf((one) => one !== wanted.revision)
  const chosen = healthy.slice(0, count)
  const kept = [...chosen, ...former.slice(0, count - chosen.length)]
  const isComplete = chosen.length === count
  const { servingRevision, servingDeployment } = row
  const what = isComplete
    ? wanted
    : servingRevision === null || servingDeployment === null
      ? undefined
      : { revision: servingRevision, deployment: servingDeployment }
  if (site !== undefined && what !== undefined) {
    const target = targetOf(spec, kept.some(answers) ? kept.filter(answers) : kept)
    const route = site.origin === null
    const isServed =
      what.revision === servingRevision &&
      (!route || (site.appUid !== null && isDeepStrictEqual(site.target ?? null, target))) &&
      kept.length === healthy.length + former.length
    if (!isServed)
      return { do: "serve", what, target, instances: kept.map(({ instance }) => instance), route }
  }
  const begun = current.filter(({ instance }) => instance.state === "starting").length
  const missing = count - healthy.filter(answers).length - begun
  // One more than there are to be, or as many as are not there at all.
  const room = Math.max(1, count - healthy.length - former.length) - begun
  if (missing > 0 && room > 0) {
    const at = (isKnown ? row.nextStartAt?.getTime() : undefined) ?? 0
    if (now >= at) return { do: "add", of: wanted }
    if (kept.length === 0)
      return {
        do: "wait",
        reason: crashes >= options.rollCrashes ? "CrashLooping" : "InstancesStarting",
        message: `Its instances ended ${crashes} times in a row; the next one is started in ${Math.ceil((at - now) / 1_000)} s`,
        forMs: at - now
      }
    const isLeaving = state.instances.some((one) => one.state !== "healthy")
    return { do: "rest", forMs: Math.min(at - now, isLeaving ? quick : options.lookMs) }
  }
  const isUp = healthy.length >= count
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

const unpaused = (one: SeenInstance): SeenInstance =>
  one.container === undefined ? one : { ...one, container: { ...one.container, paused: false } }

/** Of an app that may have several instances the edge chooses one by the requests under way, and counts these. */
const targetOf = (spec: AppSpec, taking: ReadonlyArray<SeenInstance>): Target | null => {
  const [first, ...others] = taking
    .toSorted((one, other) => (one.instance.uid < other.instance.uid ? -1 : 1))
    .flatMap(({ instance: { address, port } }) => (address === null ? [] : [{ address, port }]))
  if (first === undefined) return null
  return mostInstances(spec) === 1 && others.length === 0 ? first : { ...first, others }
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
  const isScaling = mostInstances(spec) > spec.instances && (row.scale !== null || (site?.requests ?? 0) > 0)
  return { do: "rest", forMs: isLeaving ? quick : isScaling ? options.scaleMs : options.lookMs }
}
