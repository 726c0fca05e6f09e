/** What is kept of an app in the store: instances that have ended, and what their ends say of it. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Apps } from "#src/apps/Apps.ts"
import { keptInstances } from "#src/apps/instance-changes.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

const at = (second: number) => new Date(Date.UTC(2030, 0, 1, 0, 0, second))

const makeApp = Effect.gen(function* () {
  const apps = yield* Apps
  const ref = { orgId: uuid(), uid: uuid(), fence: 1n }
  yield* apps.begin({ ...ref, environmentUid: uuid() })
  let last = ""
  const add = Effect.fnUntraced(function* (revision: string) {
    // Those of one millisecond are in no order of their own.
    let uid = uuid()
    while (uid <= last) uid = uuid()
    last = uid
    yield* apps.add(ref, { uid, deployment: uuid(), revision, port: 8_080, at: at(1) })
    return uid
  })
  const row = Effect.map(apps.find(ref), (found) => Option.getOrThrow(found).row)
  return { apps, ref, add, row }
})
const how = { at: at(2), exitCode: 1, reason: "It ended" }

layer(Apps.layer.pipe(Layer.provideMerge(testDb())), { excludeTestServices: true, timeout: "2 minutes" })(
  "an app",
  (it) => {
    it.effect("keeps the last of its ended instances only", () =>
      Effect.gen(function* () {
        const { apps, ref, add } = yield* makeApp
        const uids: Array<string> = []
        for (let i = 0; i < keptInstances + 5; i++) {
          const uid = yield* add("a")
          uids.push(uid)
          yield* apps.ended(ref, uid, how, undefined)
          assert.isTrue(yield* apps.removed(ref, uid))
        }
        const { engine } = yield* Db
        const rows = yield* engine<{ readonly uid: string }>`
          select uid from app_instance where app_uid = ${ref.uid}::uuid order by uid`
        assert.deepStrictEqual(
          rows.map(({ uid }) => uid),
          uids.slice(-keptInstances)
        )
      })
    )

    it.effect("counts the ends of the version that was started last, and forgets why one was given up", () =>
      Effect.gen(function* () {
        const { apps, ref, add, row } = yield* makeApp
        const first = yield* add("a")
        yield* apps.ended(ref, first, how, { crashes: 5, nextStartAt: at(60) })
        assert.deepInclude(yield* row, { crashes: 5, nextStartAt: at(60), startedRevision: "a" })
        yield* add("a")
        assert.deepInclude(yield* row, { crashes: 5, nextStartAt: at(60) })
        yield* add("b")
        assert.deepInclude(yield* row, { crashes: 0, nextStartAt: null, startedRevision: "b" })
        const serve = (revision: string) =>
          apps.serve(ref, {
            revision,
            deployment: uuid(),
            target: null,
            instances: [],
            route: false,
            at: at(3)
          })
        yield* serve("a")
        yield* apps.reject(ref, { revision: "b", deployment: uuid(), error: "no" })
        // What answered before goes on.
        yield* serve("a")
        assert.deepInclude(yield* row, { rejectedRevision: "b", rejectedError: "no" })
        yield* add("a")
        assert.deepInclude(yield* row, { rejectedRevision: "b", rejectedError: "no" })
        // Something else is tried.
        yield* add("c")
        assert.deepInclude(yield* row, { rejectedRevision: null, rejectedError: null })
        yield* apps.reject(ref, { revision: "b", deployment: uuid(), error: "no" })
        yield* serve("c")
        assert.deepInclude(yield* row, { rejectedRevision: null, rejectedError: null })
      })
    )
  }
)
