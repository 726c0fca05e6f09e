/** Pushes to repositories of who does not pay are deployed once they pay. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { billingInactive } from "#src/access/billing.ts"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { GitBranches } from "#src/git/GitBranches.ts"
import { makeLook } from "#src/git/look.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"

const commit = "1".repeat(40)
const source = { kind: "git", url: "https://forge.test/acme/shop.git", ref: "main", commit } as const
const commits = Layer.succeed(CommitSources, {
  resolve: () => Effect.succeed(source),
  bring: () => Effect.never
})
const services = Layer.mergeAll(GitBranches.layer, Resources.layer, commits).pipe(
  Layer.provideMerge(AppConfig.layerWith({}, {})),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

layer(services, { excludeTestServices: true })("pushes", (it) => {
  it.effect("to repositories of who does not pay wait until they pay", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const resources = yield* Resources
      const branches = yield* GitBranches
      const look = yield* makeLook
      const { id: orgId } = yield* makeOrganization()
      const { projectId } = yield* makeProject(orgId, "shop")
      yield* sql`
        insert into git_branch (org_id, project_uid, repo) values (${orgId}::uuid, ${projectId}::uuid, 'acme/shop')`
      const [branch] = yield* branches.claim({
        most: 1,
        running: [],
        orgs: { holders: new Map(), others: 1 }
      })
      if (branch === undefined) return assert.fail("it is not due")
      const deployments = Effect.map(
        resources.listKind(orgId, "Deployment", projectId, "production"),
        ({ length }) => length
      )
      const pay = (status: string) =>
        sql`update organization set billing_status = ${status} where id = ${orgId}::uuid`
      yield* pay("past_due")
      assert.deepStrictEqual(yield* look(branch), { error: billingInactive })
      assert.strictEqual(yield* deployments, 0)
      yield* pay("active")
      assert.deepStrictEqual(yield* look(branch), { error: undefined })
      assert.strictEqual(yield* deployments, 1)
    })
  )
})
