/** What makes the first one of each kind: a line of the manifest below its project, and a command. */
export interface First {
  /** Absent where manifests say nothing of the kind. */
  readonly manifest?: string
  readonly command: string
  /** The page that makes one, below the organization; a project's page is `projects`. */
  readonly page?: string
}

export const firstOf: Readonly<Record<string, First>> = {
  App: { command: "svc deploy shop ." },
  Deployment: { command: "svc deploy shop ." },
  Preview: { command: 'svc previews create shop 7 --commit "$SHA"' },
  GitSource: { command: "svc git-sources create infra https://github.com/acme/infra.git", page: "git" },
  Database: {
    manifest: "databases:\n  - { name: main, sku: db-n1, region: local }",
    command: "svc database provision shop"
  },
  DatabaseBranch: { command: "svc db branch create shop copy --into staging" },
  Cache: {
    manifest: "caches:\n  - { name: sessions, region: local }",
    command: "svc caches create shop sessions"
  },
  Queue: { manifest: "queues:\n  - { name: mail }", command: "svc queues create shop mail" },
  Cron: {
    manifest:
      'crons:\n  - name: nightly\n    environment: production\n    schedule: "0 3 * * *"\n    target: { kind: http, path: /run }',
    command: 'svc crons create shop nightly "0 3 * * *" --path /run'
  },
  Execution: { command: "svc executions run shop alpine:3 -- echo hello", page: "projects" },
  EnvVariables: { manifest: "env: { CURRENCY: EUR }", command: "echo EUR | svc env set shop CURRENCY" },
  Domain: {
    manifest: "domains: [www.example.com]",
    command: "svc domains add shop www.example.com",
    page: "projects"
  },
  AccessPolicy: {
    manifest: "access: { mode: invite_only }",
    command: "svc access set shop --mode invite_only",
    page: "projects"
  },
  AiGateway: {
    manifest:
      "aiGateways:\n  - { name: writer, environment: production, allowedModels: [svc/fast], monthlyBudgetUsd: 20 }",
    command: "svc ai create shop writer --model svc/fast --budget 20"
  },
  CustomerPayments: { command: "svc payments connect shop", page: "projects" },
  Budget: {
    manifest: "budget: { monthlyCapUsd: 50 }",
    command: "svc projects budget set shop --cap 50",
    page: "projects"
  },
  Alert: {
    manifest:
      "alerts:\n  - name: Disk\n    severity: warning\n    scope: {}\n    condition: { signal: storage.capacity, durationSeconds: 60 }",
    command: "svc alerts set shop Disk --signal storage.capacity"
  },
  Maintenance: { command: "svc maintenance set shop --enabled" },
  BackupDestination: {
    command:
      "svc destinations create offsite --endpoint https://s3.example.com --bucket backups --access-key-id ID",
    page: "destinations"
  }
}
