/**
 * Not by the shared suite: what a run writes is what the store says at that moment, so a late one does no harm and has no
 * fence to be refused by.
 */

import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as accessPolicy from "#reconcilers/access-policy.ts"
import type { AccessPolicySpec } from "#schemas/access-policy.ts"
import { EdgeNodes, EdgeUnreachable } from "#src/edge/EdgeNodes.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { SiteModes } from "#src/visitors/SiteModes.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import * as visitors from "../visitors/world.ts"
import { reachGoal } from "./settle.ts"

const node = { id: uuid(), address: "127.0.0.1", httpsPort: 8443 }

const world = Effect.gen(function* () {
  const context = yield* Layer.build(visitors.world)
  return yield* Effect.gen(function* () {
    const [{ engine: sql }, resources, sites, modes] = [
      yield* Db,
      yield* Resources,
      yield* EdgeSites,
      yield* SiteModes
    ]
    const { id: orgId } = yield* makeOrganization()
    const make = Effect.fn(function* (spec: AccessPolicySpec) {
      const { projectId, production } = yield* Effect.provideService(
        makeProject(orgId, `p-${uuid().slice(-12)}`),
        Resources,
        resources
      )
      for (const { environmentUid } of yield* modes.look(orgId, projectId))
        yield* sites.ensure({ orgId, environmentUid }, { target: undefined })
      const uid = uuid()
      const made = {
        uid,
        kind: "AccessPolicy",
        projectId,
        environment: null,
        name: "access",
        parentUid: projectId,
        spec
      } as const
      yield* resources.write(orgId, [{ action: "create", managedBy: "api", ...made }], actor)
      const resource: Resource<AccessPolicySpec> = {
        orgId,
        ...made,
        generation: 1,
        status: null,
        facts: {},
        deleting: false,
        fence: 1n
      }
      return { resource, production }
    })
    return { sql, resources, sites, modes, make }
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof world>

const layer = ({ sites, modes }: World, nodes: Partial<EdgeNodes["Service"]> = {}) =>
  accessPolicy.layer.pipe(
    Layer.provide(
      Layer.mergeAll(
        Layer.succeed(SiteModes, modes),
        Layer.succeed(EdgeSites, sites),
        Layer.mock(EdgeNodes, { live: Effect.succeed([node]), askAll: Effect.void, ...nodes })
      )
    ),
    Layer.provideMerge(Registry.layer)
  )

const spec: AccessPolicySpec = { mode: "organization", previewMode: "inherit", environments: {} }
const served = ({ modes }: World, { orgId, projectId }: Resource<AccessPolicySpec>) =>
  Effect.map(modes.look(orgId, projectId ?? ""), (all) => all.map(({ actual }) => actual))

const looked = (world: World, resource: Resource<AccessPolicySpec>, nodes?: Partial<EdgeNodes["Service"]>) =>
  Effect.gen(function* () {
    const registration =
      (yield* Registry).registrations.get("AccessPolicy") ?? assert.fail("it is not registered")
    return yield* registration.reconciler.observe(resource)
  }).pipe(Effect.provide(layer(world, nodes), { local: true }))

const settled = (world: World, resource: Resource<AccessPolicySpec>) =>
  Effect.gen(function* () {
    const registration =
      (yield* Registry).registrations.get("AccessPolicy") ?? assert.fail("it is not registered")
    return yield* reachGoal(registration.reconciler, resource, 30_000)
  }).pipe(Effect.provide(layer(world), { local: true }))

it.live("a policy waits for addresses, and says what it cannot be about", () =>
  Effect.gen(function* () {
    const here = yield* world
    const { resource, production } = yield* here.make({ ...spec, environments: { staging: "public" } })
    yield* settled(here, resource)
    assert.deepInclude(yield* looked(here, resource), {
      ready: true,
      note: { reason: "EnvironmentMissing", message: "The project has no such environment: staging" }
    })
    yield* here.sites.remove({ orgId: resource.orgId, environmentUid: production })
    const pending = yield* looked(here, resource)
    assert.deepInclude(pending, { ready: false, reason: "AddressesPending", pollAfter: "2 seconds" })
  }).pipe(Effect.scoped)
)

it.live("a policy is in force once each edge that is at work has taken it up", () =>
  Effect.gen(function* () {
    const here = yield* world
    const { resource } = yield* here.make(spec)
    yield* settled(here, resource)
    const none = yield* looked(here, resource, { live: Effect.succeed([]) })
    assert.deepInclude(none, {
      ready: true,
      note: {
        reason: "EdgeUnreachable",
        message: "No edge is at work: the environments cannot be seen at all"
      }
    })
    const askAll = Effect.fail(new EdgeUnreachable({ message: "No edge answered" }))
    const failed = yield* Effect.flip(looked(here, resource, { askAll }))
    assert.deepInclude(failed, { _tag: "Retryable", reason: "EdgeUnreachable", message: "No edge answered" })
  }).pipe(Effect.scoped)
)

it.live("sites follow what the policy says, heal, and open when it goes", () =>
  Effect.gen(function* () {
    const here = yield* world
    const { resource } = yield* here.make(spec)
    const { orgId, uid } = resource
    const sites = served(here, resource)
    assert.deepInclude(yield* looked(here, resource), {
      ready: false,
      differences: [
        { field: "/environments/preview", message: "is public at the edge, not organization" },
        { field: "/environments/production", message: "is public at the edge, not organization" }
      ]
    })
    yield* settled(here, resource)
    assert.deepStrictEqual(yield* sites, ["organization", "organization"])
    const next = {
      ...spec,
      previewMode: "invite_only",
      environments: { production: "authenticated" }
    } as const
    yield* here.resources.write(orgId, [{ action: "update", uid, spec: next }], actor)
    // A run that began before the change does what is said now.
    yield* settled(here, resource)
    assert.deepStrictEqual(yield* sites, ["invite_only", "authenticated"])
    assert.deepInclude(yield* looked(here, { ...resource, spec: next }), {
      ready: true,
      status: { environments: { preview: "invite_only", production: "authenticated" } }
    })
    yield* here.resources.write(orgId, [{ action: "delete", uid }], actor)
    yield* settled(here, { ...resource, spec: next, deleting: true })
    assert.deepStrictEqual(yield* sites, ["public", "public"])
  }).pipe(Effect.scoped)
)
