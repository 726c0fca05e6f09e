/** Builders of what tests start from: an organization, a project, an actor. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import type { Change } from "#src/store/change.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"

export const uuid = (): string => randomUUIDv7()

export const actor: Actor = {
  principal: "system",
  credential: "none",
  operation: "test.write",
  requestId: "test",
  address: null,
  outcome: 200
}

/** An organization of its own, so that tests on one database do not see each other. */
export const makeOrganization = Effect.fn(function* (slug = `org-${uuid().slice(-12)}`) {
  const { engine: sql } = yield* Db
  const id = uuid()
  yield* Effect.orDie(
    sql`insert into organization (id, name, slug, billing_status) values (${id}, ${slug}, ${slug}, 'active')`
  )
  return { id, slug }
})

/** A project with its production and preview environments. */
export const makeProject = Effect.fn(function* (orgId: string, slug: string) {
  const resources = yield* Resources
  const projectId = uuid()
  const production = uuid()
  const base = { action: "create", managedBy: "api", environment: null } as const
  const changes: ReadonlyArray<Change> = [
    {
      ...base,
      uid: projectId,
      kind: "Project",
      projectId: null,
      name: slug,
      parentUid: null,
      spec: { name: slug, runtimeClass: "scale-to-zero" }
    },
    {
      ...base,
      uid: production,
      kind: "Environment",
      projectId,
      name: "production",
      parentUid: projectId,
      spec: {}
    },
    { ...base, uid: uuid(), kind: "Environment", projectId, name: "preview", parentUid: projectId, spec: {} }
  ]
  yield* resources.write(orgId, changes, actor)
  return { projectId, production }
})

export const cacheChange = (
  place: { readonly projectId: string; readonly production: string },
  name: string,
  spec: Record<string, string | number> = {}
): Change & { readonly action: "create" } => ({
  action: "create",
  uid: uuid(),
  kind: "Cache",
  projectId: place.projectId,
  environment: "production",
  name,
  parentUid: place.production,
  spec: {
    sku: "cache-n1",
    region: "local",
    persistence: "aof",
    evictionPolicy: "allkeys-lru",
    credentialVersion: 1,
    ...spec
  },
  managedBy: "api"
})
