import { assert, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import type { Condition, Phase } from "#schemas/condition.ts"
import { publicSpec } from "#schemas/public-spec.ts"
import { branchView } from "#src/branches/view.ts"
import { cacheView } from "#src/caches/view.ts"
import { databaseView } from "#src/databases/view.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { Toy } from "#test/setup/toy-kind.ts"

const server = {
  host: "127.0.0.1",
  port: 1,
  dbName: "app",
  user: "app",
  server: "PostgreSQL 18.4",
  certificateExpiresAt: ""
}
const record = (
  kind: string,
  phase: Phase,
  ready: Condition["status"],
  parts: Pick<ResourceRecord, "spec" | "status">
): ResourceRecord => ({
  ...parts,
  orgId: uuid(),
  uid: uuid(),
  kind,
  projectId: uuid(),
  project: "shop",
  environment: "production",
  name: "main",
  parentUid: null,
  generation: 1,
  observedGeneration: 1,
  phase,
  phaseSince: new Date(),
  conditions: [
    {
      type: "Ready",
      status: ready,
      reason: "Any",
      message: "Any",
      lastTransitionAt: new Date().toISOString(),
      observedGeneration: 1
    }
  ],
  differences: [],
  revision: "1",
  protected: false,
  managedBy: "api",
  deletionRequestedAt: null,
  createdAt: new Date(),
  updatedAt: new Date(),
  attempt: 0,
  nextAttemptAt: null,
  lastError: null,
  handledRetry: null,
  waitingOn: null
})

const views: ReadonlyArray<
  readonly [string, (phase: Phase, ready: Condition["status"]) => { readonly status: string }, string]
> = [
  [
    "cache",
    (phase, ready) =>
      cacheView(
        record("Cache", phase, ready, {
          spec: { region: "local" },
          status: { host: "127.0.0.1", port: 1, memoryMb: 256, server: "redis 7", certificateExpiresAt: "" }
        })
      ),
    "provisioning"
  ],
  [
    "database",
    (phase, ready) =>
      databaseView(record("Database", phase, ready, { spec: { region: "local" }, status: server })),
    "provisioning"
  ],
  [
    "branch",
    (phase, ready) =>
      branchView(
        record("DatabaseBranch", phase, ready, {
          spec: { sourceEnvironment: "production", sourceDatabase: "main" },
          status: {
            ...server,
            state: "ready",
            sourceDatabaseId: null,
            step: null,
            doneBytes: 0,
            totalBytes: 0,
            hydrated: true,
            failure: null
          }
        })
      ),
    "hydrating"
  ]
]

for (const [name, view, otherwise] of views)
  it(`the view of a ${name} says ready exactly when the condition does, whatever the status told last`, () => {
    assert.strictEqual(view("ready", "true").status, "ready")
    assert.strictEqual(view("updating", "true").status, "ready")
    for (const phase of ["waiting", "updating", "ready"] as const)
      for (const ready of ["false", "unknown"] as const)
        assert.strictEqual(view(phase, ready).status, otherwise, `${phase}, ${ready}`)
    assert.strictEqual(view("failed", "false").status, "failed")
  })

it("what a kind says is sealed is shown masked, and what it says is internal is not shown", () => {
  const kind = {
    ...Toy,
    spec: Schema.Struct({
      size: Schema.Int,
      tokens: Schema.Record(Schema.String, Schema.String),
      version: Schema.Int
    }),
    fields: ["size", "tokens", "version"],
    internal: ["version"],
    sealed: { field: "tokens", secret: (key: string) => `tokens/${key}` }
  }
  assert.deepStrictEqual(publicSpec(kind, { size: 1, tokens: { A: "fingerprint" }, version: 3 }), {
    size: 1,
    tokens: { A: "****" }
  })
})
