import { it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { DatabaseBranchSpec } from "#schemas/database-branch.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import {
  asServer,
  type BranchResource,
  type BranchWorld,
  branchReconciler,
  branchWorld,
  makeBranch
} from "#test/setup/branches.ts"
import { asApplication, databaseRemains, databaseSnapshot, disturb } from "#test/setup/databases.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { setPassword } from "#test/setup/machine.ts"
import { lifeSuite } from "./life-suite.ts"
import { crashes, type Subject } from "./suite.ts"

const changed = (resource: BranchResource, values: Partial<DatabaseBranchSpec>): BranchResource => ({
  ...resource,
  generation: resource.generation + 1,
  spec: { ...resource.spec, ...values }
})

const behind = (statement: string) => (world: BranchWorld, resource: BranchResource) =>
  disturb(statement)(world, asServer(world, resource))

const subject: Subject<BranchWorld, DatabaseBranchSpec, unknown> = {
  name: "a branch of a database",
  kind: "DatabaseBranch",
  world: branchWorld,
  layer: branchReconciler,
  makeResource: (world) => Effect.sync(() => makeBranch(world)),
  snapshot: (world, resource) =>
    Effect.gen(function* () {
      const rows = yield* asApplication(
        world,
        asServer(world, resource),
        (sql) => sql`select count(*)::int as n, sum(n)::int as sum from ledger`
      ).pipe(Effect.catch(() => Effect.succeed([])))
      return { ...(yield* databaseSnapshot(world, asServer(world, resource))), rows: [...rows] }
    }),
  remains: (world, resource) => databaseRemains(world, asServer(world, resource)),
  changes: [
    { name: "another size", apply: (_, resource) => Effect.succeed(changed(resource, { sku: "db-s1" })) },
    {
      name: "another password",
      apply: (world, resource) =>
        Effect.sync(() => {
          setPassword(world, asServer(world, resource), `second-${uuid()}`)
          return changed(resource, { credentialVersion: resource.spec.credentialVersion + 1 })
        })
    }
  ],
  drifts: [
    {
      name: "the role has another password",
      field: "/credentialVersion",
      disturb: behind("alter role app password 'other'")
    },
    { name: "the role became a superuser", field: "/role", disturb: behind("alter role app superuser") }
  ],
  settleMs: 240_000,
  timeoutMs: 1_800_000
}

lifeSuite(subject)

campaign(
  it.live,
  "branch-crashes",
  "control planes that die again and again while a branch is made, changed and removed end where one would have",
  { rounds: 0, roundMs: 900_000 },
  crashes(subject)
)
