/** Fetching the images of deployments. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { makePulls, type PullsService } from "#src/executions/Pulls.ts"
import { Deployments } from "./Deployments.ts"

export class DeploymentPulls extends Context.Service<DeploymentPulls, PullsService>()(
  "svc/deployments/DeploymentPulls"
) {
  static readonly layer = Layer.effect(DeploymentPulls, Effect.flatMap(Deployments, makePulls))
}
