/** What becomes of a deployment next, as a function of all that is known of it. It decides and does nothing. */
import type { DeploymentErrorCode, DeploymentSpec } from "#schemas/deployment.ts"
import type { Build } from "#src/deployments/DeploymentBuilds.ts"
import type { DeploymentRow, Outcome } from "#src/deployments/Deployments.ts"
import type { DeploymentOptions } from "#src/deployments/options.ts"
import type { Pull } from "#src/executions/Pulls.ts"
import type { PulledImage } from "#src/infra/containers/ContainerEngine.ts"

/** How the app sees it. */
export interface AppSight {
  /** What the app is asked to run, and since when that was chosen. */
  readonly chosen: string | undefined
  readonly chosenAt: Date | undefined
  readonly serving: string | null
  readonly rejected: string | null
  readonly rejectedError: string | null
  /** Instances of this deployment that have not ended, or whose last words are still to be kept. */
  readonly unsettled: number
}

export interface Situation {
  readonly spec: DeploymentSpec
  readonly row: DeploymentRow | undefined
  readonly pull: Pull | undefined
  readonly build: Build | undefined
  /** Undefined: there is no app yet. */
  readonly app: AppSight | undefined
  /** Why no container engine can be asked now. */
  readonly silent: { readonly startable: boolean; readonly message: string } | undefined
  readonly options: DeploymentOptions
}

export interface End {
  readonly state: Outcome
  readonly errorCode: DeploymentErrorCode | null
  readonly error: string | null
}

export type Step =
  | {
      readonly do:
        | "begin"
        | "fetch"
        | "pull"
        | "toBuild"
        | "build"
        | "startEngine"
        | "choose"
        | "unchoose"
        | "ready"
    }
  | { readonly do: "fetched" | "built"; readonly image: PulledImage }
  | { readonly do: "end"; readonly end: End }
  /** Nothing to do but to look again. */
  | { readonly do: "wait"; readonly reason: string; readonly message: string; readonly forMs: number }
  | { readonly do: "nothing" }

/** Whoever ends what is waited for has it looked at: this is for when that came to nothing. */
const lookMs = 2_000

const end = (state: Outcome, error: string, errorCode: DeploymentErrorCode | null = null): Step => ({
  do: "end",
  end: { state, error, errorCode }
})
const superseded = end("superseded", "A newer deployment came before this one was ready")

export const decide = (situation: Situation): Step => {
  const { row, spec } = situation
  if (row === undefined) return { do: "begin" }
  switch (row.state) {
    case "ready":
    case "failed":
    case "cancelled":
    case "superseded":
      return { do: "nothing" }
    case "starting":
      return starting(situation, row)
    default:
      if (spec.cancelRequested) return end("cancelled", "It was cancelled")
      if (row.overtaken || isLate(situation, row)) return superseded
      return byState[row.state](situation, row)
  }
}

/** Somebody has chosen what is to run since it was asked for. */
const isLate = ({ app }: Situation, { createdAt }: DeploymentRow): boolean =>
  app?.chosenAt !== undefined && app.chosenAt > createdAt

const silence = ({ silent }: Situation): Step | undefined => {
  if (silent === undefined) return undefined
  return silent.startable
    ? { do: "startEngine" }
    : { do: "wait", reason: "EngineUnreachable", message: silent.message, forMs: 1_000 }
}

const queued = (situation: Situation, { stateAgeMs }: DeploymentRow): Step => {
  const { options } = situation
  if (stateAgeMs > options.queueMs)
    return end("failed", `Its turn did not come within ${options.queueMs / 1_000} s`, "timed_out")
  return silence(situation) ?? { do: situation.spec.source.kind === "image" ? "fetch" : "toBuild" }
}

const fetching = (situation: Situation, { stateAgeMs }: DeploymentRow): Step => {
  const { pull, options } = situation
  if (pull?._tag === "Failed") return end("failed", pull.message, pull.errorCode)
  if (pull?._tag === "Pulled") return { do: "fetched", image: pull.image }
  if (stateAgeMs > options.fetchMs)
    return end("failed", `The image was not there within ${options.fetchMs / 1_000} s`, "image_pull_failed")
  const waits = silence(situation)
  if (waits !== undefined) return waits
  if (pull === undefined) return { do: "pull" }
  return { do: "wait", reason: "ImagePulling", message: "The image is being fetched", forMs: lookMs }
}

const building = (situation: Situation, { stateAgeMs }: DeploymentRow): Step => {
  const { build, options } = situation
  if (build?._tag === "Failed") return end("failed", build.message, build.errorCode)
  if (build?._tag === "Built") return { do: "built", image: build.image }
  if (stateAgeMs > options.buildMs)
    return end("failed", `The image was not built within ${options.buildMs / 1_000} s`, "build_timed_out")
  const waits = silence(situation)
  if (waits !== undefined) return waits
  if (build === undefined) return { do: "build" }
  return { do: "wait", reason: "Building", message: "The image is being built", forMs: lookMs }
}

const byState = { queued, fetching, building }

const starting = (situation: Situation, row: DeploymentRow): Step => {
  const { app, spec, options } = situation
  const { uid, createdAt, stateAgeMs } = row
  if (app?.serving === uid) return { do: "ready" }
  const isChosen = app?.chosen === uid
  const over = spec.cancelRequested
    ? end("cancelled", "It was cancelled before it took requests")
    : stateAgeMs > options.startMs
      ? end("failed", `It did not take requests within ${options.startMs / 1_000} s`, "timed_out")
      : undefined
  // The app goes back to what answers before this is over.
  if (over !== undefined) return isChosen ? { do: "unchoose" } : over
  const rejected = end("failed", app?.rejectedError ?? "Its instances did not get healthy", "never_healthy")
  if (!isChosen) {
    if (app?.rejected === uid) return rejected
    // What was chosen later stays, and a deployment that was replaced is over.
    const isNewer = app?.chosenAt === undefined || app.chosenAt < createdAt
    return isNewer ? { do: "choose" } : superseded
  }
  if (app.rejected === uid) {
    // Its last words are part of the answer.
    if (app.unsettled > 0)
      return {
        do: "wait",
        reason: "InstancesStarting",
        message: "Its instances are being ended",
        forMs: lookMs
      }
    // What comes next, such as a changed variable, is tried with what answers.
    return { do: "unchoose" }
  }
  return {
    do: "wait",
    reason: "InstancesStarting",
    message: "Its instances are started and have to get healthy",
    forMs: lookMs
  }
}
