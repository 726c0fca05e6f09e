/** Deadlines of deployments; a reference, so that tests can have their own. */
import * as Context from "effect/Context"

export interface DeploymentOptions {
  /** How long one waits for its turn. */
  readonly queueMs: number
  /** For fetching the image. */
  readonly fetchMs: number
  /** For building it, with the time until its turn comes. */
  readonly buildMs: number
  /** From the moment at which the app was asked to run it: more than instances may take to get healthy. */
  readonly startMs: number
  /** Lines of what its instances printed that are told with a failure, and bytes of them. */
  readonly lastLines: number
  readonly lastBytes: number
}

export const DeploymentOptions = Context.Reference<DeploymentOptions>("svc/deployments/DeploymentOptions", {
  defaultValue: () => ({
    queueMs: 3_600_000,
    fetchMs: 1_800_000,
    buildMs: 7_200_000,
    startMs: 1_800_000,
    lastLines: 50,
    lastBytes: 16_384
  })
})
