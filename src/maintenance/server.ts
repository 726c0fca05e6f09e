import * as Layer from "effect/Layer"
import * as maintenance from "#reconcilers/maintenance.ts"
import { GatewayKeys } from "#src/ai-gateways/GatewayKeys.ts"
import * as backups from "#src/backups/services.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import type { Server } from "#src/feature.ts"
import { CurrentMetrics } from "#src/metrics/CurrentMetrics.ts"
import { MetricHistory } from "#src/metrics/MetricHistory.ts"
import { Actions } from "./Actions.ts"
import * as act from "./act.ts"
import type { Maintenance } from "./api.ts"
import { Findings } from "./Findings.ts"
import * as handlers from "./handlers.ts"
import { Runs } from "./Runs.ts"
import * as runner from "./runner.ts"
import { Schedules } from "./Schedules.ts"

export const server: Server<typeof Maintenance> = {
  handlers: handlers.layer.pipe(Layer.provide([Schedules.layer, Runs.layer, Findings.layer, Actions.layer])),
  callers: act.layer.pipe(Layer.provide(Actions.layer)),
  reconcilers: maintenance.layer.pipe(Layer.provide(Schedules.layer)),
  loops: runner.layer.pipe(
    Layer.provide([
      Schedules.layer,
      Runs.layer,
      backups.layer,
      GatewayKeys.layer,
      Budgets.layer,
      CurrentMetrics.layer,
      MetricHistory.layer
    ])
  )
}
