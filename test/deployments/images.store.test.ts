/** Which images of deployments are kept, and which can be let go of. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Deployments } from "#src/deployments/Deployments.ts"
import { keptRecords, retireDeployments } from "#src/deployments/retire.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const services = Layer.mergeAll(Deployments.layer, Resources.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

layer(services, {
  excludeTestServices: true,
  timeout: "3 minutes"
})("images of deployments", (it) => {
  it.effect("stay of the one that answers, of five more ready ones, and of those on their way", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const deployments = yield* Deployments
      const [orgId, environment] = [uuid(), uuid()]
      const add = Effect.fnUntraced(function* (
        image: string,
        state: string,
        day: number,
        environmentUid = environment
      ) {
        const uid = uuid()
        const over = state !== "starting"
        yield* sql`
          insert into deployment (org_id, uid, environment_uid, fence, created_at, state, image_id, ready_at, finished_at)
          values (${orgId}, ${uid}, ${environmentUid}, 1, now(), ${state}, ${image},
            ${state === "ready" ? new Date(2030, 0, day) : null}, ${over ? new Date(2030, 0, day) : null})`
        return uid
      })
      const oldest = yield* add("i1", "ready", 1)
      for (const day of [2, 3, 4, 5, 6, 7, 8]) yield* add(`i${day}`, "ready", day)
      yield* add("failed", "failed", 9)
      yield* add("coming", "starting", 9)
      // The same image is what another environment has.
      yield* add("i2", "ready", 1, uuid())
      yield* sql`
        insert into app (org_id, uid, environment_uid, fence, serving_deployment)
        values (${orgId}, ${uuid()}, ${environment}, 1, ${oldest})`
      const names = ["i1", "i2", "i4", "i5", "i6", "i7", "i8", "coming"]
      assert.sameMembers([...(yield* deployments.keptImages)], names)
      assert.sameMembers([...(yield* deployments.looseImages)], ["i3", "failed"])
      assert.isTrue(yield* deployments.imageReleased("i3"))
      // Somebody wants it kept: it is not let go of.
      assert.isFalse(yield* deployments.imageReleased("i8"))
      assert.deepStrictEqual([...(yield* deployments.looseImages)], ["failed"])
      assert.include(yield* deployments.keptImages, "i8")
    })
  )

  it.effect("are fetched with credentials that are kept no longer than that takes", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const deployments = yield* Deployments
      const { id: orgId } = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(orgId, "shop")
      const add = Effect.fnUntraced(function* (state: string) {
        const uid = uuid()
        yield* sql`
          insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
          values (${orgId}, ${uid}, 'Deployment', ${projectId}, 'production', ${uid}, ${production}, '{}', 'api')`
        yield* sql`
          insert into deployment (org_id, uid, environment_uid, fence, created_at, state)
          values (${orgId}, ${uid}, ${production}, 1, now(), ${state})`
        yield* sql`
          insert into secret (org_id, uid, field, key_id, sealed)
          values (${orgId}, ${uid}, 'imagePullCredentials', 'k', 'x')`
        return { orgId, uid, fence: 1n }
      })
      const [fetched, failed] = [yield* add("queued"), yield* add("queued")]
      const left = Effect.map(
        sql<{ readonly uid: string }>`select uid from secret where field = 'imagePullCredentials'`,
        (rows) => rows.map(({ uid }) => uid)
      )
      assert.isTrue(yield* deployments.moveTo(fetched, ["queued"], "fetching", "Fetching"))
      assert.sameMembers(yield* left, [fetched.uid, failed.uid])
      const image = { id: "i", digest: null }
      assert.isTrue(yield* deployments.moveTo(fetched, ["fetching"], "starting", "Fetched", image))
      assert.sameMembers(yield* left, [failed.uid])
      const end = { state: "failed", errorCode: "image_not_found", error: "gone", printed: [] } as const
      assert.isTrue(yield* deployments.end({ ...failed, projectId }, end))
      assert.deepStrictEqual(yield* left, [])
    })
  )

  it.effect("go with the records of those that cannot be chosen, once these are old or many", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { id: orgId } = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(orgId, "shop")
      const add = Effect.fnUntraced(function* (
        state: string,
        days: number,
        more: { readonly imageGone?: boolean; readonly number?: number } = {}
      ) {
        const uid = uuid()
        yield* sql`
          insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
          values (${orgId}, ${uid}, 'Deployment', ${projectId}, 'production', ${uid}, ${production}, '{}', 'api')`
        yield* sql`
          insert into deployment (org_id, uid, environment_uid, fence, created_at, state, image_gone, finished_at)
          values (${orgId}, ${uid}, ${production}, 1,
            now() - make_interval(days => ${days}, secs => ${more.number ?? 0}), ${state}, ${more.imageGone ?? false},
            ${state === "starting" ? null : sql`now() - make_interval(days => ${days})`})`
        return uid
      })
      const kept = [
        yield* add("ready", 400),
        yield* add("starting", 400),
        yield* add("failed", 89),
        yield* add("ready", 89, { imageGone: true })
      ]
      const serving = yield* add("ready", 400, { imageGone: true })
      const app = uuid()
      yield* sql`
        insert into app (org_id, uid, environment_uid, fence, serving_deployment)
        values (${orgId}, ${app}, ${production}, 1, ${serving})`
      const chosen = yield* add("failed", 400)
      yield* sql`
        insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
        values (${orgId}, ${app}, 'App', ${projectId}, 'production', 'app', ${production},
          ${sql.json({ deployment: chosen })}, 'api')`
      const gone = [yield* add("failed", 91), yield* add("ready", 91, { imageGone: true })]
      const going = Effect.map(
        sql<{ readonly uid: string }>`
          select uid from resource where org_id = ${orgId} and kind = 'Deployment' and deletion_requested_at is not null`,
        (rows) => rows.map(({ uid }) => uid)
      )
      assert.strictEqual(yield* retireDeployments, gone.length)
      assert.sameMembers(yield* going, gone)
      assert.strictEqual(yield* retireDeployments, 0)
      // Newer ones than all but two of those that stay.
      for (let number = 0; number < keptRecords; number++) yield* add("cancelled", 1, { number })
      assert.strictEqual(yield* retireDeployments, 2)
      assert.sameMembers(yield* going, [...gone, ...kept.slice(2)])
    })
  )
})
