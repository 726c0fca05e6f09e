import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type AccessMode, type AccessPolicySpec, accessModeOf } from "#schemas/access-policy.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { SiteModes } from "#src/visitors/SiteModes.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { world } from "./world.ts"

const none = { mode: "public", previewMode: "inherit", environments: {} } as const

/** What a policy comes to in production and in preview. */
const table: ReadonlyArray<
  readonly [AccessPolicySpec | undefined, production: AccessMode, preview: AccessMode]
> = [
  [undefined, "public", "public"],
  [none, "public", "public"],
  [{ ...none, mode: "organization" }, "organization", "organization"],
  [{ ...none, mode: "authenticated", previewMode: "public" }, "authenticated", "public"],
  [{ ...none, previewMode: "invite_only" }, "public", "invite_only"],
  [{ ...none, mode: "invite_only", previewMode: "inherit" }, "invite_only", "invite_only"],
  [{ ...none, environments: { production: "organization" } }, "organization", "public"],
  [{ ...none, mode: "organization", environments: { preview: "public" } }, "organization", "public"],
  [
    { mode: "organization", previewMode: "authenticated", environments: { preview: "invite_only" } },
    "organization",
    "invite_only"
  ],
  [{ ...none, mode: "organization", environments: { staging: "public" } }, "organization", "organization"]
]

layer(world, { excludeTestServices: true })("the mode of an environment", (it) => {
  const policyOf = (projectId: string, spec: AccessPolicySpec) =>
    ({
      action: "create",
      uid: uuid(),
      kind: "AccessPolicy",
      projectId,
      environment: null,
      name: "access",
      parentUid: projectId,
      spec,
      managedBy: "api"
    }) as const

  it.effect("is the same to programs, to the store and to a site that is made", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const sites = yield* EdgeSites
      const { id: orgId } = yield* makeOrganization()
      for (const [index, [policy, production, preview]] of table.entries()) {
        const row = `row ${index}`
        const project = yield* makeProject(orgId, `p-${index}`)
        if (policy !== undefined) yield* resources.write(orgId, [policyOf(project.projectId, policy)], actor)
        assert.strictEqual(accessModeOf(policy, "production"), production, row)
        assert.strictEqual(accessModeOf(policy, "preview"), preview, row)
        const look = (yield* SiteModes).look(orgId, project.projectId)
        const wanted = yield* look
        assert.deepStrictEqual(
          wanted.map((one) => [one.environment, one.wanted, one.actual]),
          [
            ["preview", preview, null],
            ["production", production, null]
          ],
          row
        )
        for (const { environmentUid } of wanted)
          yield* sites.ensure({ orgId, environmentUid }, { target: undefined })
        assert.deepStrictEqual(
          (yield* look).map(({ actual }) => actual),
          [preview, production],
          row
        )
      }
    })
  )

  it.effect("opens with a policy that is deleted, but not while the environment goes too", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const { engine: sql } = yield* Db
      const { id: orgId } = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(orgId, "shop")
      const policy = policyOf(projectId, { ...none, mode: "organization" })
      yield* resources.write(orgId, [policy], actor)
      const modes = Effect.map(
        Effect.flatMap(SiteModes, ({ look }) => look(orgId, projectId)),
        (all) => all.map(({ wanted }) => wanted)
      )
      yield* sql`update resource set deletion_requested_at = now() where uid = ${production}`
      yield* resources.write(orgId, [{ action: "delete", uid: policy.uid }], actor)
      assert.deepStrictEqual(yield* modes, ["public", "organization"])
      // Another one takes its place.
      yield* resources.write(orgId, [policyOf(projectId, { ...none, mode: "invite_only" })], actor)
      assert.deepStrictEqual(yield* modes, ["invite_only", "invite_only"])
    })
  )
})
