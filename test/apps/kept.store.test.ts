/** What is kept of an app in the store: instances that have ended, and what their ends say of it. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { AppLogs } from "#src/apps/AppLogs.ts"
import { Apps } from "#src/apps/Apps.ts"
import { keptInstances } from "#src/apps/instance-changes.ts"
import { AppOptions } from "#src/apps/options.ts"
import { revisionField } from "#src/apps/request-changes.ts"
import type { Target } from "#src/edge/target.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

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

layer(
  Layer.mergeAll(Apps.layer, Resources.layer).pipe(
    Layer.provideMerge(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  { excludeTestServices: true, timeout: "2 minutes" }
)("an app", (it) => {
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

  it.effect("sends requests to one that has ended no more, and goes on sending them to the others", () =>
    Effect.gen(function* () {
      const { engine } = yield* Db
      const apps = yield* Apps
      const { id: orgId } = yield* makeOrganization()
      const { production: environmentUid } = yield* makeProject(orgId, "shop")
      const ref = { orgId, uid: uuid(), fence: 1n }
      yield* engine`insert into edge_site (org_id, environment_uid, label)
          values (${orgId}::uuid, ${environmentUid}::uuid, ${environmentUid})`
      yield* apps.begin({ ...ref, environmentUid })
      const addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
      const uids: Array<string> = []
      for (const address of addresses) {
        const uid = uuid()
        uids.push(uid)
        yield* apps.add(ref, { uid, deployment: uuid(), revision: "a", port: 8_080, at: at(1) })
        yield* apps.started(ref, uid, address, at(1))
      }
      const target = (...left: ReadonlyArray<string>) => {
        const [first, ...others] = left.map((address) => ({ address, port: 8_080 }))
        return first === undefined ? null : { ...first, others }
      }
      const served = (wanted: Target | null) =>
        apps.serve(ref, {
          revision: "a",
          deployment: uuid(),
          target: wanted,
          instances: uids,
          route: true,
          at: at(2)
        })
      const stored = Effect.map(apps.site(orgId, environmentUid), (site) => Option.getOrThrow(site).target)
      yield* served(target(...addresses))
      const [first = "", second = "", third = ""] = uids
      yield* apps.ended(ref, second, how, undefined)
      assert.deepStrictEqual(yield* stored, target("10.0.0.1", "10.0.0.3"))
      yield* apps.ended(ref, first, how, undefined)
      assert.deepStrictEqual(yield* stored, target("10.0.0.3"))
      // Of an app that has one at most.
      yield* served({ address: "10.0.0.3", port: 8_080 })
      yield* apps.ended(ref, third, how, undefined)
      assert.isNull(yield* stored)
    })
  )

  it.effect("keeps what instances are started with for the versions that have some", () =>
    Effect.gen(function* () {
      const { engine } = yield* Db
      const apps = yield* Apps
      const { id: orgId } = yield* makeOrganization()
      const { production: parentUid } = yield* makeProject(orgId, "shop")
      const ref = { orgId, uid: parentUid, fence: 1n }
      yield* apps.begin({ ...ref, environmentUid: parentUid })
      const keep = (revision: string) => engine`insert into secret (org_id, uid, field, key_id, sealed)
          values (${orgId}::uuid, ${parentUid}::uuid, ${revisionField(revision)}, 'k', 'x')`
      const left = Effect.map(
        engine<{ readonly field: string }>`
            select field from secret where uid = ${parentUid}::uuid and starts_with(field, 'revision/') order by field`,
        (rows) => rows.map(({ field }) => field)
      )
      for (const revision of ["a", "b", "c"]) yield* keep(revision)
      const what = { revision: "b", deployment: uuid(), target: null, route: false, at: at(2) }
      yield* apps.add(ref, { uid: uuid(), deployment: uuid(), revision: "c", port: 8_080, at: at(1) })
      yield* apps.serve(ref, { ...what, instances: [] })
      assert.deepStrictEqual(yield* left, ["revision/b", "revision/c"])
      yield* apps.reject(ref, { revision: "c", deployment: uuid(), error: "no" })
      assert.deepStrictEqual(yield* left, ["revision/b"])
      // Another reconcile has it by now.
      assert.isFalse(
        yield* apps.reject({ ...ref, fence: 0n }, { revision: "b", deployment: uuid(), error: "no" })
      )
      assert.deepStrictEqual(yield* left, ["revision/b"])
    })
  )

  it.effect(
    "keeps the last of what an instance prints, also of one that prints nothing but ends of lines",
    () =>
      Effect.gen(function* () {
        const { ref, add } = yield* makeApp
        const logs = yield* AppLogs
        const uid = yield* add("a")
        const log = { orgId: ref.orgId, uid }
        yield* logs.follow(log, "me", 1_000)
        let position = 0
        for (let round = 0; round < 10; round++) {
          const pieces = Array.from({ length: 200 }, () => ({
            position: position++,
            stream: "stdout" as const,
            at: at(1),
            content: Buffer.from("\n")
          }))
          assert.isTrue(yield* logs.append(log, "me", pieces, false))
        }
        const left = (yield* logs.tail(log, 10_000)).map((one) => Number(one.position))
        assert.strictEqual(left.at(-1), 1_999)
        // 100 of them have the weight that is kept; those that go are looked for before the last ones come.
        assert.isAtLeast(left.length, 100)
        assert.isAtMost(left.length, 301)
      }).pipe(
        Effect.provide(
          AppLogs.layer.pipe(
            Layer.provide(
              Layer.effect(
                AppOptions,
                Effect.map(AppOptions, (defaults) => ({ ...defaults, logBytes: 6_500 }))
              )
            )
          )
        )
      )
  )
})
