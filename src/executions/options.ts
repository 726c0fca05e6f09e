/** Times and bounds of executions; a reference, so that tests can have their own. */
import * as Context from "effect/Context"

export interface ExecutionOptions {
  /** For fetching the image, making the container and starting it. */
  readonly startupMs: number
  /** How long one that has not begun waits for an engine that is not there or does not answer. */
  readonly engineMs: number
  /** From being told to end until it is made to. */
  readonly graceMs: number
  /** How long an engine may be silent until what ran on it counts as lost. */
  readonly hostLostMs: number
  /** How long what was printed is waited for once the command has ended. */
  readonly captureMs: number
  /** Tries to remove a container, until somebody has to look at it. */
  readonly cleanupTries: number
  /** How long who follows a container may be silent until somebody else does. */
  readonly followerMs: number
  /** Bytes that are kept of what one execution prints; every piece counts for some more than it holds. */
  readonly logBytes: number
  /** How long one waits for its turn: for room on this host, and to fetch its image. */
  readonly queueMs: number
  /** Images that are fetched at once in one process, and for one organization. */
  readonly pulls: number
  readonly pullsPerOrg: number
  /** How long an image may not come any nearer until fetching it is given up. */
  readonly pullStallMs: number
  /** Tries to fetch an image while trying again may help. */
  readonly pullTries: number
}

export const ExecutionOptions = Context.Reference<ExecutionOptions>("svc/executions/ExecutionOptions", {
  defaultValue: () => ({
    startupMs: 600_000,
    engineMs: 120_000,
    graceMs: 10_000,
    hostLostMs: 60_000,
    captureMs: 60_000,
    cleanupTries: 8,
    followerMs: 15_000,
    logBytes: 10 * 1024 * 1024,
    queueMs: 86_400_000,
    pulls: 4,
    pullsPerOrg: 2,
    pullStallMs: 120_000,
    pullTries: 3
  })
})
