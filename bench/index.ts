/** `npm run bench [name ...]`: every figure is a ratio to a peer or a limit that was measured in the same run. */
import * as os from "node:os"
import { startPostgres } from "#test/setup/postgres.ts"
import { type Figure, print } from "./figures.ts"

const benches: Record<string, () => Promise<(url: string) => Promise<ReadonlyArray<Figure>>>> = {
  noop: async () => (await import("./noop.ts")).noop,
  latency: async () => (await import("./latency.ts")).latency,
  looks: async () => (await import("./looks.ts")).looks,
  plan: async () => (await import("./plan.ts")).plan,
  api: async () => (await import("./api.ts")).api,
  idle: async () => (await import("./idle.ts")).idle,
  mcp: async () => (await import("./mcp.ts")).mcp,
  auth: async () => (await import("./auth.ts")).auth,
  agents: async () => (await import("./agents.ts")).agents,
  queues: async () => (await import("./queues.ts")).queues,
  ai: async () => (await import("./ai.ts")).ai,
  "ai-budget": async () => (await import("./ai-budget.ts")).aiBudget,
  payments: async () => (await import("./payments.ts")).payments,
  "speed-insights": async () => (await import("./speed-insights.ts")).speedInsights(1_000_000),
  "speed-insights-full": async () => (await import("./speed-insights.ts")).speedInsights(10_000_000),
  rls: async () => (await import("./rls.ts")).rls,
  crons: async () => (await import("./crons.ts")).crons,
  alerts: async () => (await import("./alerts.ts")).alerts,
  branches: async () => (await import("./branches.ts")).branches,
  backups: async () => (await import("./backups.ts")).backups,
  deploy: async () => (await import("./deploy.ts")).deploy,
  edge: async () => (await import("./edge.ts")).edge,
  domains: async () => (await import("./domains.ts")).domains,
  isolation: async () => (await import("./isolation.ts")).isolation,
  metrics: async () => (await import("./metrics.ts")).metrics,
  web: async () => (await import("./web.ts")).web
}

/** They take many minutes: only when they are named. */
const onRequest = new Set(["speed-insights-full"])

// Figures are of a disk: servers that tests would have in memory are made there.
process.env["SVC_TEST_DIR"] ??= os.tmpdir()

const wanted = process.argv.slice(2)
for (const [name, load] of Object.entries(benches)) {
  if (wanted.length > 0 ? !wanted.includes(name) : onRequest.has(name)) continue
  const server = await startPostgres({ durable: true })
  try {
    print(name, await (await load())(server.url))
  } finally {
    server.stop()
  }
}
