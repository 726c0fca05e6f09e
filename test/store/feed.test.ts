import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { Db } from "#src/store/Db.ts"
import { Feed } from "#src/store/Feed.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject } from "#test/setup/fixtures.ts"

const Store = Layer.mergeAll(Resources.layer, Feed.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

layer(Store, { excludeTestServices: true })("change feed", (it) => {
  it.effect("begins with what is there and goes on with each change", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const feed = yield* Feed
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const change = cacheChange(place, "one")
      const names = yield* Effect.forkChild(
        feed.follow(org.id).pipe(
          Stream.map((item) => `${item.record.name}@${item.record.generation}`),
          Stream.take(5),
          Stream.runCollect
        ),
        { startImmediately: true }
      )
      yield* resources.write(org.id, [change], actor)
      yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec: { n: 1 } }], actor)
      yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec: { n: 2 } }], actor)
      const seen = yield* Fiber.join(names).pipe(Effect.timeoutOption("10 seconds"))
      // Fast changes may be folded into the newest state, but the newest state always comes.
      if (seen._tag === "Some") assert.includeMembers(seen.value, ["shop@1", "production@1", "preview@1"])
      const pages = yield* feed.page(org.id)
      assert.include(
        pages.map((item) => `${item.record.name}@${item.record.generation}`),
        "one@3"
      )
    })
  )

  it.effect("a transaction that commits late is not missed by a reader that is already further", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const feed = yield* Feed
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const [late, early] = [cacheChange(place, "late"), cacheChange(place, "early")]
      yield* resources.write(org.id, [late, early], actor)
      const start = (yield* feed.page(org.id)).at(-1)!.cursor

      const written = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      const slow = yield* Effect.forkChild(
        sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`update resource set revision = nextval('resource_revision'), txid = pg_current_xact_id()
              where uid = ${late.uid}::uuid`
            yield* Deferred.succeed(written, undefined)
            yield* Deferred.await(go)
          })
        )
      )
      yield* Deferred.await(written)
      yield* resources.write(org.id, [{ action: "update", uid: early.uid, spec: { n: 1 } }], actor)
      const before = yield* feed.page(org.id, start)
      assert.deepStrictEqual(before, [], "nothing is final while an older transaction runs")
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(slow)
      const after = yield* feed.page(org.id, start)
      assert.deepStrictEqual(after.map((item) => item.record.name).sort(), ["early", "late"])
    })
  )
})
