/** Every feature there is. The order is that of commands in the help and of operations in the API document. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { agents } from "./agents/feature.ts"
import { aiGateways } from "./ai-gateways/feature.ts"
import { alerts } from "./alerts/feature.ts"
import { apps } from "./apps/feature.ts"
import { backups } from "./backups/feature.ts"
import { branches } from "./branches/feature.ts"
import { budgets } from "./budgets/feature.ts"
import { caches } from "./caches/feature.ts"
import { catalog } from "./catalog/feature.ts"
import { crons } from "./crons/feature.ts"
import { dashboard } from "./dashboard/feature.ts"
import { databases } from "./databases/feature.ts"
import { deployments } from "./deployments/feature.ts"
import { domains } from "./domains/feature.ts"
import { edge } from "./edge/feature.ts"
import { env } from "./env/feature.ts"
import { executions } from "./executions/feature.ts"
import type { Server } from "./feature.ts"
import { git } from "./git/feature.ts"
import { gitSources } from "./git-sources/feature.ts"
import { identity } from "./identity/feature.ts"
import { mail } from "./mail/feature.ts"
import { maintenance } from "./maintenance/feature.ts"
import { manifest } from "./manifest/feature.ts"
import { mcp } from "./mcp/feature.ts"
import { metrics } from "./metrics/feature.ts"
import { organizations } from "./organizations/feature.ts"
import { payments } from "./payments/feature.ts"
import { previews } from "./previews/feature.ts"
import { projects } from "./projects/feature.ts"
import { queues } from "./queues/feature.ts"
import { resources } from "./resources/feature.ts"
import { speedInsights } from "./speed-insights/feature.ts"
import { TableRules } from "./store/table-rules.ts"
import { system } from "./system/feature.ts"
import { telemetry } from "./telemetry/feature.ts"
import { visitors } from "./visitors/feature.ts"
import { webhooks } from "./webhooks/feature.ts"

export const features = [
  identity,
  manifest,
  gitSources,
  resources,
  projects,
  budgets,
  env,
  caches,
  queues,
  aiGateways,
  payments,
  crons,
  executions,
  deployments,
  git,
  apps,
  previews,
  backups,
  databases,
  branches,
  edge,
  visitors,
  domains,
  metrics,
  maintenance,
  alerts,
  speedInsights,
  organizations,
  agents,
  webhooks,
  catalog,
  mail,
  mcp,
  telemetry,
  dashboard,
  system
] as const

/** Fails when a setting of any feature is wrong, with what is wrong in each of them. */
export const checkSettings = Effect.gen(function* () {
  const settings = yield* Effect.promise(() => Promise.all(features.map((feature) => feature.settings())))
  const [, faults] = yield* Effect.partition(settings, (config) => config)
  if (faults.length > 0) return yield* new SettingsInvalid({ message: faults.map(String).join("; ") })
})

export class SettingsInvalid extends Schema.TaggedError<SettingsInvalid>()("SettingsInvalid", {
  message: Schema.String
}) {}

/** What runs of them in the control plane. */
export const loadServers: Effect.Effect<ReadonlyArray<Server>> = Effect.promise(() =>
  Promise.all(features.map((feature) => feature.server()))
)

/** Their tables, and after them those of the store itself: an organization's resources go last. */
export const tableRules = Layer.effect(
  TableRules,
  Effect.promise(async () => {
    const owned = await Promise.all(features.map((feature) => feature.tables()))
    return [...owned.flat(), ...(await import("./store/tables.ts")).tables]
  })
)
