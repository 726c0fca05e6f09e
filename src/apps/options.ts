/** Times and bounds of apps; a reference, so that tests can have their own. */
import * as Context from "effect/Context"

export interface AppOptions {
  /** How long requests that are under way may take once others go to new instances. */
  readonly drainMs: number
  /** From being told to end until an instance is made to. */
  readonly graceMs: number
  /** Instances of a new version that may end by themselves until it is given up. */
  readonly rollCrashes: number
  /** First and longest pause before an instance that ended by itself is followed by another. */
  readonly backoffMs: readonly [number, number]
  /** A healthy instance that ran so long makes up for those that ended before. */
  readonly steadyMs: number
  /** Between requests being held and instances being paused: what was sent before arrives. */
  readonly settleMs: number
  /** How long what was printed is waited for once an instance has ended. */
  readonly captureMs: number
  /** How long who follows a container may be silent until somebody else does. */
  readonly followerMs: number
  /** Bytes that are kept of what one instance prints: the last ones. */
  readonly logBytes: number
  /** Between looks at an app that nothing happens to. */
  readonly lookMs: number
  /** Between checks of the health of an instance that was healthy. */
  readonly livenessMs: number
  /** Between looks at how many requests are under way, while there are some. */
  readonly scaleMs: number
  /** How long fewer instances have to do until one of them is ended. */
  readonly scaleDownMs: number
}

export const AppOptions = Context.Reference<AppOptions>("svc/apps/AppOptions", {
  defaultValue: () => ({
    drainMs: 30_000,
    graceMs: 10_000,
    rollCrashes: 3,
    backoffMs: [1_000, 300_000],
    steadyMs: 600_000,
    settleMs: 1_500,
    captureMs: 30_000,
    followerMs: 15_000,
    logBytes: 10 * 1024 * 1024,
    lookMs: 10_000,
    livenessMs: 10_000,
    scaleMs: 3_000,
    scaleDownMs: 180_000
  })
})
