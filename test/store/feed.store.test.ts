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
import { eventually } from "#test/setup/wait.ts"

/** Other databases of the cluster hold the feed back while their transactions run: it arrives, a little later. */
const pageWith = Effect.fn(function* (
  orgId: string,
  after: string | undefined,
  names: ReadonlyArray<string>
) {
  const feed = yield* Feed
  return yield* eventually(`${names} are in the feed`, feed.page(orgId, after), (changes) =>
    names.every((name) => changes.some(({ record }) => record.name === name))
  )
})

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
      const seen: Array<string> = []
      const follower = yield* Effect.forkChild(
        Stream.runForEach(feed.follow(org.id), ({ record, deleted }) =>
          Effect.sync(() => void seen.push(`${record.name}@${record.generation}${deleted ? " gone" : ""}`))
        ),
        { startImmediately: true }
      )
      const shows = (entry: string) =>
        eventually(
          `the feed shows ${entry}`,
          Effect.sync(() => seen),
          (entries) => entries.includes(entry)
        )
      yield* shows("shop@1")
      yield* resources.write(org.id, [change], actor)
      yield* shows("one@1")
      yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec: { n: 1 } }], actor)
      yield* shows("one@2")
      assert.strictEqual(new Set(seen).size, seen.length, "nothing comes twice")
      yield* Fiber.interrupt(follower)
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
      const start = (yield* pageWith(org.id, undefined, ["late", "early"])).at(-1)!.cursor

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
      const after = yield* pageWith(org.id, start, ["late", "early"])
      assert.deepStrictEqual(after.map((item) => item.record.name).sort(), ["early", "late"])
    })
  )
})
