/** Kinds whose outside is tables of the store: what their suites have in common. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Resource } from "#src/engine/Reconciler.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"

export const storeWorld = Effect.gen(function* () {
  const context = yield* Layer.build(testDb())
  const { id: orgId } = yield* Effect.provide(makeOrganization(), context)
  return { db: Context.get(context, Db), orgId }
})
export type StoreWorld = Effect.Success<typeof storeWorld>

/** The one of its kind in a project of its own. */
export const singleton = <Spec>(kind: string, name: string, spec: Spec) =>
  Effect.fnUntraced(function* ({ db, orgId }: StoreWorld) {
    const [uid, projectId] = [uuid(), uuid()]
    yield* Effect.orDie(db.engine`
      insert into resource (org_id, uid, kind, project_id, name, spec, managed_by) values
        (${orgId}::uuid, ${projectId}::uuid, 'Project', null, ${projectId}, '{}', 'api'),
        (${orgId}::uuid, ${uid}::uuid, ${kind}, ${projectId}::uuid, ${name}, '{}', 'api')`)
    const resource: Resource<Spec> = {
      ...{ orgId, uid, kind, projectId, environment: null, name, parentUid: projectId, spec },
      ...{ generation: 1, status: null, facts: {}, deleting: false, fence: 1n }
    }
    return resource
  })

/** A statement about the resource (`$uid`) or its project (`$project`). */
export const run =
  (statement: string) =>
  (
    { db }: Pick<StoreWorld, "db">,
    { uid, projectId }: { readonly uid: string; readonly projectId: string | null }
  ) =>
    Effect.asVoid(
      db.engine.unsafe(statement.replaceAll("$uid", `'${uid}'`).replaceAll("$project", `'${projectId}'`))
    )

/** A later generation with other values. */
export const changed =
  <Values extends object>(values: Values) =>
  <Spec>(_: unknown, resource: Resource<Spec>): Effect.Effect<Resource<Spec>> =>
    Effect.succeed({
      ...resource,
      generation: resource.generation + 1,
      spec: { ...resource.spec, ...values }
    })
