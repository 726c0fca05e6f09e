/** The shared suite on a real object store: a destination's outside is what is kept of it, and what a test leaves. */

import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { afterAll } from "vitest"
import * as backupDestination from "#reconcilers/backup-destination.ts"
import type { BackupDestinationSpec } from "#schemas/backup-destination.ts"
import { Destinations } from "#src/backups/destinations/Destinations.ts"
import { AppConfig } from "#src/config.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"
import { reconcilerSuite } from "./suite.ts"

const trusted = ({ caPem }: ObjectStore) => Effect.sync(() => trust(caPem))

/** One object store for all tests: each destination has a prefix of its own in it. */
const scope = Scope.makeUnsafe()
const sharedStore = Effect.runSync(Effect.cached(Effect.tap(Scope.provide(objectStore, scope), trusted)))
afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

const world = Effect.gen(function* () {
  const far = yield* sharedStore
  const context = yield* Layer.build(
    Destinations.layer.pipe(
      Layer.provide(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))),
      Layer.provide(AppConfig.layerWith({ outboundAllow: ["127.0.0.0/8", "::1/128"] })),
      Layer.provideMerge(KeyRing.layerEphemeral),
      Layer.provideMerge(testDb())
    )
  )
  const { id: orgId } = yield* makeOrganization().pipe(Effect.provide(context))
  return {
    far,
    orgId,
    db: Context.get(context, Db),
    destinations: Context.get(context, Destinations)
  }
})
type World = Effect.Success<typeof world>

/** What is in the bucket below its prefix: a test must leave nothing. */
const objects = Effect.fnUntraced(function* (
  { destinations }: World,
  { orgId, uid, spec }: Resource<BackupDestinationSpec>
) {
  const place = yield* destinations.at(orgId, uid, spec.version)
  return (yield* Stream.runCollect(place.list(""))).map(({ key }) => key)
})

reconcilerSuite<World, BackupDestinationSpec, unknown>({
  name: "a backup destination",
  kind: "BackupDestination",
  makesNothing: true,
  world,
  layer: ({ destinations }) =>
    backupDestination.layer.pipe(
      Layer.provide(Layer.succeed(Destinations, destinations)),
      Layer.provideMerge(Registry.layer)
    ),
  makeResource: Effect.fnUntraced(function* ({ far, orgId, destinations }) {
    const uid = uuid()
    const { endpoint, bucket } = far
    const version = yield* destinations.keep({ orgId, uid }, far.config({ prefix: uid }))
    return {
      orgId,
      uid,
      kind: "BackupDestination",
      projectId: null,
      environment: null,
      name: "offsite",
      parentUid: null,
      spec: { endpoint, bucket, prefix: uid, region: null, version },
      generation: 1,
      status: null,
      facts: {},
      deleting: false,
      fence: 1n
    }
  }),
  snapshot: Effect.fnUntraced(function* (world, resource) {
    const versions = yield* world.db.engine`
      select version, fault from backup_destination_version where destination_id = ${resource.uid}::uuid`
    return { versions, left: yield* objects(world, resource) }
  }),
  remains: ({ db }, { uid }) =>
    Effect.map(
      db.engine<{ readonly version: number }>`
        select version from backup_destination_version where destination_id = ${uid}::uuid`,
      (rows) => rows.map(({ version }) => `version ${version}`)
    ),
  changes: [],
  drifts: [
    {
      name: "a test that is due",
      field: "/tested",
      disturb: ({ db }, { uid }) =>
        Effect.asVoid(
          db.engine`
            update backup_destination_version set tested_at = now() - interval '1 day'
            where destination_id = ${uid}::uuid`
        )
    }
  ],
  settleMs: 120_000,
  timeoutMs: 900_000
})
