/** Which images of deployments are kept, and which can be let go of. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Deployments } from "#src/deployments/Deployments.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

layer(Deployments.layer.pipe(Layer.provideMerge(testDb())), {
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
      yield* deployments.imageReleased("i3")
      // Somebody wants it kept: it is not let go of.
      yield* deployments.imageReleased("i8")
      assert.deepStrictEqual([...(yield* deployments.looseImages)], ["failed"])
      assert.include(yield* deployments.keptImages, "i8")
    })
  )
})
