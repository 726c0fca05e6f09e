import * as Layer from "effect/Layer"
import * as budget from "#reconcilers/budget.ts"
import { GatewayUsage } from "#src/ai-gateways/GatewayUsage.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { Catalog } from "#src/catalog/Catalog.ts"
import type { Server } from "#src/feature.ts"
import { CurrentMetrics } from "#src/metrics/CurrentMetrics.ts"
import type { Budgets } from "./api.ts"
import { Budgets as Books } from "./Budgets.ts"
import { BudgetUsage } from "./BudgetUsage.ts"
import * as handlers from "./handlers.ts"
import * as metering from "./metering.ts"
import * as tidy from "./tidy.ts"

export const server: Server<typeof Budgets> = {
  handlers: handlers.layer.pipe(Layer.provide(BudgetUsage.layer)),
  reconcilers: budget.layer.pipe(Layer.provide(Books.layer)),
  loops: Layer.mergeAll(
    tidy.layer,
    metering.layer.pipe(
      Layer.provide([Catalog.layer, CurrentMetrics.layer, GatewayUsage.layer, Ledger.layer])
    )
  )
}
