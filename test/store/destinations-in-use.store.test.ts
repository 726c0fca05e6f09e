/** A destination and the databases that name it, written at the same moment by whoever. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import { markDeleted } from "#src/organizations/deletion.ts"
import type { Change } from "#src/store/change.ts"
import { Db, transaction } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const Store = Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

const destination = (): Change => ({
  action: "create",
  uid: uuid(),
  kind: "BackupDestination",
  projectId: null,
  environment: null,
  name: `d-${uuid()}`,
  parentUid: null,
  spec: { endpoint: "https://s3.example.test", bucket: "b", prefix: "", region: null, version: 1 },
  managedBy: "api"
})
const naming = (ids: ReadonlyArray<string>) => ({ sku: "db-n1", backup: { destinationIds: ids } })
const outcome = <A>(result: Result.Result<A, { readonly _tag: string; readonly code?: string }>) =>
  Result.isSuccess(result) ? "done" : (result.failure.code ?? result.failure._tag)

const start = Effect.gen(function* () {
  const resources = yield* Resources
  const org = yield* makeOrganization()
  const place = yield* makeProject(org.id, "shop")
  const write = (...changes: ReadonlyArray<Change>) => resources.write(org.id, changes, actor)
  const database = (ids: ReadonlyArray<string>): Change => ({
    action: "create",
    uid: uuid(),
    kind: "Database",
    projectId: place.projectId,
    environment: "production",
    name: "main",
    parentUid: place.production,
    spec: naming(ids),
    managedBy: "manifest"
  })
  const make = Effect.gen(function* () {
    const change = destination()
    yield* write(change)
    return change.uid
  })
  return { org, place, write, database, make }
})

layer(Store, { excludeTestServices: true })("a destination that is named", (it) => {
  it.effect("is not deleted by whoever did not see that it is named", () =>
    Effect.gen(function* () {
      const { write, database, make } = yield* start
      const id = yield* make
      const one = database([id])
      yield* write(one)
      const refused = yield* Effect.flip(write({ action: "delete", uid: id }))
      assert.strictEqual(refused._tag === "Refused" ? refused.code : refused._tag, "in_use")
      assert.include(refused.message, "shop/production/Database/main")
      // What changes something else of a database does not look again.
      yield* write({ action: "update", uid: one.uid, spec: { ...naming([id]), sku: "db-s1" } })
      yield* write({ action: "update", uid: one.uid, spec: naming([]) })
      yield* write({ action: "delete", uid: id })
      const late = yield* Effect.flip(write({ action: "update", uid: one.uid, spec: naming([id]) }))
      assert.strictEqual(late._tag === "Refused" ? late.code : late._tag, "unknown_destination")
      // Of another organization it is none.
      const stranger = yield* start
      const foreign = yield* stranger.make
      const lent = yield* Effect.exit(write({ action: "update", uid: one.uid, spec: naming([foreign]) }))
      assert.isTrue(Exit.isFailure(lent))
      // A database that is going needs it no more.
      const last = yield* make
      yield* write({ action: "update", uid: one.uid, spec: naming([last]) })
      yield* write({ action: "delete", uid: one.uid })
      yield* write({ action: "delete", uid: last })
    })
  )

  it.effect("is named or deleted, never both, when both are asked at once", () =>
    Effect.gen(function* () {
      const { write, database, make } = yield* start
      const one = database([])
      yield* write(one)
      const seen = new Set<string>()
      for (let round = 0; round < 60; round++) {
        const id = yield* make
        const pair = [
          Effect.result(write({ action: "delete", uid: id })),
          // With another change it is a transaction of several statements, as a manifest makes it.
          Effect.result(
            write(
              { action: "update", uid: one.uid, spec: naming([id]) },
              ...(round % 2 === 0 ? [] : [destination()])
            )
          )
        ]
        const order = round % 4 < 2 ? pair : pair.toReversed()
        const results = (yield* Effect.all(order, { concurrency: 2 })).map(outcome)
        assert.strictEqual(results.filter((result) => result === "done").length, 1, results.join(" "))
        seen.add(results.find((result) => result !== "done") ?? "")
        yield* write({ action: "update", uid: one.uid, spec: naming([]) })
      }
      assert.includeMembers(["in_use", "unknown_destination"], [...seen])
    })
  )

  it.effect("waits for a database that is being written, and is waited for", () =>
    Effect.gen(function* () {
      const { org, write, database, make } = yield* start
      const { engine } = yield* Db
      const one = database([])
      yield* write(one)
      const held = (statement: string, meanwhile: Effect.Effect<unknown, unknown>) =>
        transaction(engine, Effect.andThen(engine.unsafe(statement), meanwhile))
      const results: Array<string> = []
      const answered = (count: number) =>
        eventually(
          `${count} answers`,
          Effect.sync(() => results),
          (all) => all.length === count
        )
      const later = (change: Change) =>
        Effect.andThen(
          Effect.forkDetach(
            Effect.tap(Effect.result(write(change)), (result) =>
              Effect.sync(() => void results.push(outcome(result)))
            )
          ),
          eventually(
            "somebody waits for a lock",
            Effect.orDie(engine<{ readonly waiting: boolean }>`
              select exists (select from pg_locks l join pg_stat_activity a using (pid)
                where not l.granted and a.datname = current_database()) as waiting`),
            ([row]) => row?.waiting === true
          )
        )
      const kept = yield* make
      yield* held(
        `update resource set spec = '${JSON.stringify(naming([kept]))}' where org_id = '${org.id}' and uid = '${one.uid}'`,
        later({ action: "delete", uid: kept })
      )
      yield* answered(1)
      const gone = yield* make
      yield* held(
        `update resource set deletion_requested_at = now() where org_id = '${org.id}' and uid = '${gone}'`,
        later({ action: "update", uid: one.uid, spec: naming([gone]) })
      )
      yield* answered(2)
      assert.deepStrictEqual(results, ["in_use", "unknown_destination"])
    })
  )

  it.effect("goes with its organization", () =>
    Effect.gen(function* () {
      const { org, write, database, make } = yield* start
      const { engine } = yield* Db
      const id = yield* make
      yield* write(database([id]))
      yield* engine`update organization set deletion_requested_at = now() where id = ${org.id}::uuid`
      // The destination is first, as if there were more than go at once.
      yield* engine`update resource set deletion_requested_at = now()
        where org_id = ${org.id}::uuid and kind = 'BackupDestination'`
      yield* engine`with ${markDeleted(engine, org.id, "system", engine`true`)} select count(*) from doomed`
      const left = yield* engine`
        select from resource where org_id = ${org.id}::uuid and deletion_requested_at is null`
      assert.isEmpty(left)
    })
  )
})
