import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { DatabaseBranchSpec } from "#schemas/database-branch.ts"
import { callOffLost, collect } from "#src/branches/chores.ts"
import { Promotions } from "#src/branches/Promotions.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const stack = Resources.layer.pipe(Layer.provide(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

const spec: typeof DatabaseBranchSpec.Type = {
  sourceEnvironment: "production",
  sourceDatabase: "main",
  source: { kind: "current" },
  region: "local",
  sku: "db-n1",
  expiresInDays: 7,
  deleteOnPreviewClose: false,
  promoteWhenReady: false,
  credentialVersion: 1
}

const branchStatus = {
  ...{ state: "queued", sourceDatabaseId: null, step: null, doneBytes: 0, totalBytes: 0, hydrated: false },
  ...{ host: null, port: null, dbName: null, user: null, server: null, certificateExpiresAt: null }
}

layer(stack, { excludeTestServices: true, timeout: "1 minute" })("records of branches", (it) => {
  it.effect("go a week after the branch has expired or was promoted, and not before", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const resources = yield* Resources
      const { id: orgId } = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(orgId, "shop")
      const branch = Effect.fnUntraced(function* (name: string, state: string, days: number) {
        const uid = uuid()
        const place = { projectId, environment: "production", name, parentUid: production }
        yield* resources.write(
          orgId,
          [{ action: "create", uid, kind: "DatabaseBranch", ...place, spec, managedBy: "api" }],
          actor
        )
        yield* sql`update resource set status = ${JSON.stringify({ state })}::text::jsonb,
          updated_at = now() - make_interval(hours => ${days * 24}::int) where org_id = ${orgId} and uid = ${uid}`
        return name
      })
      const due = [yield* branch("expired", "expired", 7.5), yield* branch("promoted", "promoted", 30)]
      yield* branch("just-expired", "expired", 6.5)
      yield* branch("in-use", "ready", 30)
      yield* branch("on-its-way", "hydrating", 30)
      const doomed = sql<{ readonly name: string }>`select name from resource
        where org_id = ${orgId} and deletion_requested_at is not null order by name`
      yield* collect
      assert.deepStrictEqual(
        (yield* doomed).map(({ name }) => name),
        due
      )
      // Another look finds nothing more.
      yield* collect
      assert.lengthOf(yield* doomed, 2)
    })
  )

  it.effect(
    "a promotion of a branch whose data is lost is called off: the database keeps its own history",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const resources = yield* Resources
        const { id: orgId } = yield* makeOrganization()
        const [earlier, kept] = [uuid(), uuid()]
        for (const own of [undefined, earlier]) {
          const { projectId, production } = yield* makeProject(orgId, own === undefined ? "shop" : "other")
          const place = {
            projectId,
            environment: "production",
            parentUid: production,
            managedBy: "api" as const
          }
          const [branch, database] = [uuid(), uuid()]
          const name = own === undefined ? "first" : "second"
          const databaseSpec = {
            sku: "db-n1",
            region: "local",
            lineage: branch,
            keptAs: kept,
            backup: { destinationIds: [], retentionDays: 7 }
          }
          yield* resources.write(
            orgId,
            [
              { action: "create", uid: database, kind: "Database", ...place, name, spec: databaseSpec },
              {
                action: "create",
                uid: branch,
                kind: "DatabaseBranch",
                ...place,
                name: `${name}-branch`,
                spec: { ...spec, promotedTo: database }
              }
            ],
            actor
          )
          const status = {
            ...{ host: "", port: 1, dbName: "", user: "", server: "", certificateExpiresAt: "" },
            lineage: own ?? database
          }
          yield* sql`update resource set status = ${JSON.stringify(status)}::text::jsonb
          where org_id = ${orgId} and uid = ${database}`
          const now = Effect.fnUntraced(function* (uid: string) {
            const [row] = yield* sql<{ readonly spec: Record<string, unknown> }>`
            select spec from resource where org_id = ${orgId} and uid = ${uid}`
            return row?.spec ?? {}
          })
          yield* callOffLost
          assert.strictEqual((yield* now(branch))["promotedTo"], database, "as long as it may still come")
          const lost = { ...branchStatus, failure: { code: "data_lost", step: "ready", detail: "gone" } }
          yield* sql`update resource set status = ${JSON.stringify(lost)}::text::jsonb
          where org_id = ${orgId} and uid = ${branch}`
          yield* callOffLost
          assert.notProperty(yield* now(branch), "promotedTo")
          const after = yield* now(database)
          assert.strictEqual(after["lineage"], own)
          assert.notProperty(after, "keptAs")
        }
      }).pipe(Effect.provide(Promotions.layer))
  )
})
