/** Parts of manifests: the least that each section takes, and every section with everything in it. */

export const base = { name: "A", slug: "alpha", runtimeClass: "always-on" }
export const document = (project: object) => ({
  version: 1,
  organization: "main",
  projects: [{ ...base, ...project }]
})
export const queue = { name: "jobs" }
export const cron = { name: "nightly", environment: "production", schedule: "0 3 * * *" }
export const database = { name: "main", sku: "db-n1", region: "local" }
export const cache = { name: "sessions", region: "local" }
export const gateway = { name: "chat", allowedModels: ["svc/fast"], monthlyBudgetUsd: 20 }
export const payments = {
  secretKey: "rk_test_sample0001",
  webhookSecret: "whsec_sample0001",
  credentialScopes: ["products:write"],
  allowedRedirectOrigins: ["https://example.com"]
}
export const alert = { name: "Slow queries", severity: "warning", scope: {} }

/** Every section with everything in it. */
export const everything = {
  region: "local",
  git: { repo: "acme/app.web", ref: "main" },
  env: { TOKEN: "secret", KEPT: "****" },
  envForBuilds: ["TOKEN"],
  environments: { staging: {} },
  domains: ["www.example.com"],
  storage: [{ name: "uploads", region: "eu" }],
  queues: [
    {
      name: "jobs",
      environment: "staging",
      retentionSeconds: 86_400,
      deliveryDelaySeconds: 5,
      deadLetterQueue: "dead",
      paused: false,
      consumer: {
        path: "/jobs",
        maxBatchSize: 10,
        maxBatchWaitSeconds: 1,
        maxRetries: 3,
        retryDelaySeconds: 10,
        maxConcurrency: null
      }
    },
    { name: "dead", environment: "staging", deadLetterQueue: null }
  ],
  crons: [
    {
      ...cron,
      timezone: "Europe/Berlin",
      enabled: true,
      target: { kind: "http", path: "/run", method: "POST", body: { deep: [1, null, "x"] } },
      retry: { maxAttempts: 3, initialDelaySeconds: 1, maxDelaySeconds: 60 },
      concurrencyPolicy: "skip",
      timeoutSeconds: 300
    }
  ],
  databases: [
    {
      ...database,
      environment: "staging",
      replicas: 2,
      backup: {
        pitrDays: 7,
        dailyDays: 7,
        weeklyWeeks: 4,
        monthlyMonths: 12,
        destinationIds: ["d1"],
        copyRegions: ["eu"]
      }
    }
  ],
  caches: [
    { ...cache, environment: "preview", sku: "cache-s1", persistence: "none", evictionPolicy: "noeviction" }
  ],
  realtime: [
    {
      name: "rooms",
      environment: "production",
      region: "global",
      retentionSeconds: 60,
      presenceEnabled: true,
      maxConnections: 100,
      maxMessagesPerSecond: 10,
      paused: false
    }
  ],
  aiGateways: [
    { ...gateway, environment: "production", timeoutMs: 30_000, maxRetries: 2, redactPrompts: true }
  ],
  customerPayments: [{ ...payments, environment: "production" }],
  databaseBranch: {
    sourceEnvironment: "staging",
    sourceDatabase: "main",
    expiresInDays: null,
    deleteOnPreviewClose: true
  },
  alerts: [
    {
      ...alert,
      enabled: true,
      scope: { environment: "staging", database: "main", queue: null, cron: null },
      condition: { signal: "storage.capacity", operator: "gt", threshold: null, durationSeconds: 60 },
      channels: [{ kind: "dashboard", destination: null }],
      cooldownSeconds: 300
    }
  ],
  access: { mode: "public", previewMode: "inherit", environments: { staging: "invite_only" } },
  auth: {
    enabled: true,
    allowedOrigins: ["https://example.com"],
    redirectUrls: ["https://example.com/back"],
    emailPassword: true,
    magicLink: false,
    passwordMinLength: 12,
    accessTokenTtlSeconds: 900,
    refreshTokenTtlSeconds: 86_400,
    sessionIdleTtlSeconds: 3_600,
    sessionMaxTtlSeconds: 86_400,
    magicLinkTtlSeconds: 600,
    passwordResetTtlSeconds: 3_600
  },
  budget: { monthlyCapUsd: 50.5, alertThresholdPercent: null, hardStop: true },
  maintenance: {
    enabled: true,
    schedule: "weekly",
    categories: ["versions", "backups"],
    environments: ["production"],
    autoRemediation: {
      enabled: true,
      maximumRisk: "write",
      allowedOperationIds: ["resources.retry"],
      maxActionsPerRun: 3
    }
  }
}
