/** A machine with a running database and branches of it. What the store would know is kept in memory. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as branch from "#reconcilers/database/branch.ts"
import type { DatabaseBranchSpec } from "#schemas/database-branch.ts"
import { localPlace } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { type BranchOrigin, Sources } from "#src/branches/Sources.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { Hydrations } from "#src/infra/postgres/Hydrations.ts"
import { reachGoal } from "#test/reconcilers/settle.ts"
import {
  asApplication,
  type DatabaseResource,
  type DatabaseWorld,
  databaseServices,
  databaseWorld,
  makeDatabase,
  settleDatabase
} from "./databases.ts"
import { makeResource } from "./machine.ts"

export interface BranchWorld extends DatabaseWorld {
  readonly source: DatabaseResource
  readonly origins: Map<string, BranchOrigin>
}
export type BranchResource = Resource<DatabaseBranchSpec>

/** The source runs and holds a table `ledger` of 1,000 numbers. */
export const branchWorldIn = Effect.fnUntraced(function* (world: DatabaseWorld) {
  const source: DatabaseResource = { ...makeDatabase(world), fence: 1n }
  yield* settleDatabase(world, source)
  yield* asApplication(world, source, (sql) =>
    sql.unsafe("create table ledger (n int primary key); insert into ledger select generate_series(1, 1000)")
  ).pipe(Effect.orDie)
  const origin = {
    uid: source.uid,
    environment: "production",
    lineage: source.uid,
    previewData: false,
    previews: []
  }
  const made: BranchWorld = { ...world, source, origins: new Map([[source.uid, origin]]) }
  return made
})

export const branchWorld = Effect.flatMap(databaseWorld, branchWorldIn)

export const branchReconciler = (world: BranchWorld) =>
  branch.layer.pipe(
    Layer.provide(Hydrations.layer),
    Layer.provide(databaseServices(world)),
    // Branches of backups are made by a whole control plane: test/branches/point-in-time.test.ts.
    Layer.provide(Layer.mock(Repository, { local: localPlace("/nowhere") })),
    Layer.provide(
      Layer.succeed(Sources, {
        find: ({ sourceDatabaseId, sourceEnvironment }) =>
          Effect.sync(() =>
            Option.fromUndefinedOr(
              sourceDatabaseId === undefined
                ? [...world.origins.values()].find(({ environment }) => environment === sourceEnvironment)
                : world.origins.get(sourceDatabaseId)
            )
          )
      })
    ),
    Layer.provideMerge(Registry.layer)
  )

export const makeBranch = (world: BranchWorld, spec: Partial<DatabaseBranchSpec> = {}): BranchResource =>
  makeResource(
    world,
    {
      kind: "DatabaseBranch",
      name: "copy",
      environment: "staging",
      spec: {
        sourceEnvironment: "production",
        sourceDatabase: "main",
        sourceDatabaseId: world.source.uid,
        source: { kind: "current" },
        region: "local",
        sku: "db-n1",
        expiresInDays: null,
        deleteOnPreviewClose: false,
        promoteWhenReady: false,
        credentialVersion: 1,
        ...spec
      }
    },
    world.source
  )

/** Brings a branch to what it should be, within one control plane. */
export const settleBranch = (world: BranchWorld, resource: BranchResource, settleMs = 240_000) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("DatabaseBranch")!
    yield* reachGoal(reconciler, resource, settleMs)
  }).pipe(Effect.provide(branchReconciler(world), { local: true }))

/** Helpers for databases look at no more than where a server is and whose password it takes. */
export const asServer = (world: BranchWorld, { uid, spec }: BranchResource): DatabaseResource => ({
  ...world.source,
  uid,
  spec: { ...world.source.spec, sku: spec.sku, credentialVersion: spec.credentialVersion }
})
