import type { AppSpec } from "#schemas/app.ts"

/** One instance that sleeps, for tests of what becomes of an app. */
export const smallApp: AppSpec = {
  region: "local",
  instances: 1,
  maxInstances: 1,
  requestsPerInstance: 10,
  cpus: 1,
  memoryMb: 64,
  port: 8_080,
  healthCheck: { path: "/", timeoutSeconds: 5, startSeconds: 60, failures: 3 },
  idle: { pauseSeconds: 300, stopSeconds: 3_600 },
  restarts: 0
}
