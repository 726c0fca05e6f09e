import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { DatabaseBranchSpec } from "#schemas/database-branch.ts"
import { maintenanceLoop } from "#src/branches/maintenance.ts"
import { makeMaintenanceRows } from "#src/branches/maintenance-rows.ts"
import { Promotions } from "#src/branches/Promotions.ts"
import { branchView, decodeBranch } from "#src/branches/view.ts"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { Db } from "#src/store/Db.ts"
import { Refused } from "#src/store/errors.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const stack = Promotions.layer.pipe(
  Layer.provideMerge(Resources.layer),
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

const spec: typeof DatabaseBranchSpec.Type = {
  sourceEnvironment: "production",
  sourceDatabase: "main",
  source: { kind: "current" },
  region: "local",
  sku: "db-n1",
  expiresInDays: 7,
  deleteOnPreviewClose: false,
  promoteWhenReady: false,
  credentialVersion: 1
}

const branchStatus = {
  ...{ state: "queued", sourceDatabaseId: null, step: null, doneBytes: 0, totalBytes: 0, hydrated: false },
  ...{ host: null, port: null, dbName: null, user: null, server: null, certificateExpiresAt: null }
}

/** Restores that are ready, oldest first. */
const makeRestores = Effect.fnUntraced(function* (count: number, state = "ready") {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  const uids = Array.from({ length: count }, uuid)
  const place = { projectId, environment: "production", parentUid: production, managedBy: "api" as const }
  const restore = { ...spec, sourceDatabaseId: uuid(), promoteWhenReady: true }
  yield* resources.write(
    orgId,
    uids.map((uid, n) => ({
      action: "create" as const,
      uid,
      kind: "DatabaseBranch",
      ...place,
      name: `restore-${n}`,
      spec: restore
    })),
    actor
  )
  const status = JSON.stringify({ ...branchStatus, state, hydrated: true, failure: null })
  for (const [n, uid] of uids.entries())
    yield* sql`update resource set phase = 'ready',
      conditions = '[{"type": "Ready", "status": "true", "reason": "Converged", "message": "Ready", "lastTransitionAt": "", "observedGeneration": 1}]', status = ${status}::text::jsonb,
      created_at = now() - make_interval(hours => ${count - n}::int) where org_id = ${orgId} and uid = ${uid}`
  return { orgId, uids, database: restore.sourceDatabaseId }
})

/** Everything that is due, up to so many, in one process. */
const round = Effect.gen(function* () {
  const { claim, run, settle } = yield* maintenanceLoop
  const claimed = yield* claim({ most: 50, orgs: makeFairShare(50).rooms(), running: [] })
  yield* Effect.forEach(claimed, (one) => Effect.flatMap(run(one), (result) => settle(one, result)))
})

const triesOf = (orgId: string) =>
  Effect.flatMap(
    Db,
    ({ engine: sql }) => sql<{ readonly uid: string; readonly tries: number; readonly dueAt: Date }>`
      select uid, tries, due_at as "dueAt" from branch_try where org_id = ${orgId}`
  )

layer(stack, { excludeTestServices: true, timeout: "5 minutes" })("records of branches", (it) => {
  it.effect("go a week after the branch has expired or was promoted, and not before", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const resources = yield* Resources
      const { id: orgId } = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(orgId, "shop")
      const branch = Effect.fnUntraced(function* (name: string, state: string, days: number) {
        const uid = uuid()
        const place = { projectId, environment: "production", name, parentUid: production }
        yield* resources.write(
          orgId,
          [{ action: "create", uid, kind: "DatabaseBranch", ...place, spec, managedBy: "api" }],
          actor
        )
        yield* sql`update resource set status = ${JSON.stringify({ state })}::text::jsonb,
          updated_at = now() - make_interval(hours => ${days * 24}::int) where org_id = ${orgId} and uid = ${uid}`
        return name
      })
      const due = [yield* branch("expired", "expired", 7.5), yield* branch("promoted", "promoted", 30)]
      yield* branch("just-expired", "expired", 6.5)
      yield* branch("in-use", "ready", 30)
      yield* branch("on-its-way", "hydrating", 30)
      const doomed = sql<{ readonly name: string }>`select name from resource
        where org_id = ${orgId} and deletion_requested_at is not null order by name`
      yield* round
      assert.deepStrictEqual(
        (yield* doomed).map(({ name }) => name),
        due
      )
      // Another look finds nothing more.
      yield* round
      assert.lengthOf(yield* doomed, 2)
    })
  )

  it.effect(
    "a promotion of a branch whose data is lost is called off: the database keeps its own history",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const resources = yield* Resources
        const { id: orgId } = yield* makeOrganization()
        const [earlier, kept] = [uuid(), uuid()]
        for (const own of [undefined, earlier]) {
          const { projectId, production } = yield* makeProject(orgId, own === undefined ? "shop" : "other")
          const place = {
            projectId,
            environment: "production",
            parentUid: production,
            managedBy: "api" as const
          }
          const [branch, database] = [uuid(), uuid()]
          const name = own === undefined ? "first" : "second"
          const databaseSpec = {
            sku: "db-n1",
            region: "local",
            lineage: branch,
            keptAs: kept,
            backup: { destinationIds: [], retentionDays: 7 }
          }
          yield* resources.write(
            orgId,
            [
              { action: "create", uid: database, kind: "Database", ...place, name, spec: databaseSpec },
              {
                action: "create",
                uid: branch,
                kind: "DatabaseBranch",
                ...place,
                name: `${name}-branch`,
                spec: { ...spec, promotedTo: database }
              }
            ],
            actor
          )
          const status = {
            ...{ host: "", port: 1, dbName: "", user: "", server: "", certificateExpiresAt: "" },
            lineage: own ?? database
          }
          yield* sql`update resource set status = ${JSON.stringify(status)}::text::jsonb
          where org_id = ${orgId} and uid = ${database}`
          const now = Effect.fnUntraced(function* (uid: string) {
            const [row] = yield* sql<{ readonly spec: Record<string, unknown> }>`
            select spec from resource where org_id = ${orgId} and uid = ${uid}`
            return row?.spec ?? {}
          })
          yield* round
          assert.strictEqual((yield* now(branch))["promotedTo"], database, "as long as it may still come")
          const lost = { ...branchStatus, failure: { code: "data_lost", step: "ready", detail: "gone" } }
          yield* sql`update resource set status = ${JSON.stringify(lost)}::text::jsonb
          where org_id = ${orgId} and uid = ${branch}`
          yield* round
          assert.notProperty(yield* now(branch), "promotedTo")
          const after = yield* now(database)
          assert.strictEqual(after["lineage"], own)
          assert.notProperty(after, "keptAs")
        }
      })
  )

  it.effect(
    "a restore that cannot be promoted yet is tried ever more rarely, and keeps no other waiting",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const { orgId, uids } = yield* makeRestores(52)
        const tried: Array<string> = []
        const promoted = (uid: string) =>
          Effect.asVoid(
            Effect.orDie(
              sql`update resource set spec = spec || '{"promoteWhenReady": false}' where uid = ${uid}`
            )
          )
        const [broken, youngest] = [uids[1], uids[51]]
        const refusing = Layer.mock(Promotions, {
          promote: ({ uid }) =>
            Effect.suspend(() => {
              if (!uids.includes(uid)) return Effect.void
              tried.push(uid)
              return uid === youngest
                ? promoted(uid)
                : uid === broken
                  ? Effect.die(new Error("a fault of the program"))
                  : Effect.fail(new Refused({ code: "not_ready", message: "It is not ready" }))
            })
        })
        const look = Effect.provide(round, refusing, { local: true })
        yield* look
        assert.notInclude(tried, youngest)
        assert.lengthOf(tried, 50)
        yield* look
        assert.include(tried, youngest)
        // As long as none is due nothing is tried, and it is told once.
        yield* sql`update branch_try set due_at = now() + interval '1 hour' where org_id = ${orgId}`
        const before = tried.length
        yield* look
        assert.strictEqual(tried.length, before)
        const first = uids[0]
        for (let n = 1; n <= 4; n++) {
          const [due] = yield* sql<{ readonly at: Date; readonly tries: number }>`
            update branch_try set due_at = now() where org_id = ${orgId} and uid = ${first}
            returning due_at as at, tries`
          yield* look
          const now = (yield* triesOf(orgId)).find(({ uid }) => uid === first)
          const before = due?.tries ?? 0
          assert.isAtLeast(before, n)
          assert.strictEqual(now?.tries, before + 1)
          assert.isAtLeast(+(now?.dueAt ?? 0) - +(due?.at ?? 0), (2 ** before * 1_000) / 2)
        }
        const told = yield* sql<{ readonly reason: string; readonly message: string }>`
        select reason, message from resource_event where org_id = ${orgId} and uid = ${first} and type = 'Warning'`
        assert.deepStrictEqual(
          told.map(({ reason, message }) => [reason, message]),
          [["PromotionWaits", "It is not ready"]]
        )
        // What has come to its end leaves no record.
        yield* sql`update branch_try set due_at = now() where org_id = ${orgId}`
        const fine = Layer.mock(Promotions, {
          promote: ({ uid }) => promoted(uid)
        })
        yield* Effect.repeat(Effect.provide(round, fine, { local: true }), { times: 1 })
        assert.deepStrictEqual(yield* triesOf(orgId), [])
      })
  )

  it.effect("a restore whose database is gone is not promoted any more, and says why", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const { orgId, uids } = yield* makeRestores(1)
      yield* round
      const branch = Option.getOrThrow(yield* resources.get(orgId, uids[0]!))
      assert.strictEqual(decodeBranch(branch).spec.promoteWhenReady, false)
      const { failure, connectionReady, status } = branchView(branch)
      assert.deepStrictEqual(
        [failure?.code, failure?.step, connectionReady, status],
        ["no_database", "promotion", true, "ready"]
      )
      assert.deepStrictEqual(yield* triesOf(orgId), [])
      const { generation } = branch
      yield* round
      assert.strictEqual(Option.getOrThrow(yield* resources.get(orgId, uids[0]!)).generation, generation)
    })
  )

  it.effect("a restore that has expired is not tried", () =>
    Effect.gen(function* () {
      const { orgId, uids } = yield* makeRestores(1, "expired")
      const tried: Array<string> = []
      const watching = Layer.mock(Promotions, {
        promote: ({ uid }) => Effect.sync(() => void tried.push(uid))
      })
      yield* Effect.provide(round, watching, { local: true })
      assert.notInclude(tried, uids[0])
      assert.deepStrictEqual(yield* triesOf(orgId), [])
    })
  )

  it.effect("records that are protected keep no other from being removed", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { orgId, uids } = yield* makeRestores(51, "expired")
      yield* sql`update resource set updated_at = now() - interval '30 days',
        protected = uid <> ${uids[50]}::uuid where org_id = ${orgId} and kind = 'DatabaseBranch'`
      yield* round
      yield* round
      const gone = yield* sql<{ readonly uid: string }>`
        select uid from resource where org_id = ${orgId} and deletion_requested_at is not null`
      assert.deepStrictEqual(
        gone.map(({ uid }) => uid),
        [uids[50]]
      )
    })
  )

  it.effect("what one process has done is begun by no other, however long ago that one looked", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const rows = yield* makeMaintenanceRows
      const { orgId, uids } = yield* makeRestores(2)
      const [first, second] = uids.toSorted()
      // The one that is looked at last is due the longest.
      yield* sql`update resource set created_at = now() - interval '1 year' where uid = ${second}`
      const [held, looked] = [yield* Deferred.make<number>(), yield* Deferred.make<void>()]
      const holder = yield* sql<{ readonly pid: number }>`
        insert into branch_try (org_id, uid, tries, due_at) values (${orgId}, ${first}, 0, now())
        returning pg_backend_pid() as pid`.pipe(
        Effect.tap(([row]) => Deferred.succeed(held, row!.pid)),
        Effect.andThen(Deferred.await(looked)),
        Effect.andThen(sql`delete from branch_try where uid = ${first}`),
        sql.withTransaction,
        Effect.forkChild
      )
      const pid = yield* Deferred.await(held)
      const slow = yield* Effect.forkChild(rows.claim(50))
      yield* eventually(
        "it has looked, and waits",
        sql`select from pg_stat_activity where ${pid}::int = any (pg_blocking_pids(pid))`,
        (locks) => locks.length > 0
      )
      const quick = yield* rows.claim(1)
      for (const one of quick) {
        yield* sql`update resource set spec = spec || '{"promoteWhenReady": false}' where uid = ${one.uid}`
        yield* rows.succeeded(one)
      }
      yield* Deferred.succeed(looked, undefined)
      yield* Fiber.join(holder)
      const begun = [...quick, ...(yield* Fiber.join(slow))].filter((one) => one.orgId === orgId)
      assert.sameMembers(
        begun.map(({ uid }) => uid),
        uids
      )
    })
  )

  it.effect("a branch of which something is still to be done after its turn rests before the next", () =>
    Effect.gen(function* () {
      const { orgId, uids } = yield* makeRestores(1)
      let turns = 0
      const idle = Layer.mock(Promotions, {
        promote: ({ uid }) =>
          Effect.sync(() => {
            if (uids.includes(uid)) turns++
          })
      })
      yield* Effect.repeat(Effect.provide(round, idle, { local: true }), { times: 2 })
      assert.strictEqual(turns, 1)
      const [row] = yield* triesOf(orgId)
      assert.strictEqual(row?.tries, 0)
      assert.isAbove(+(row?.dueAt ?? 0), Date.now() + 60_000)
    })
  )
})
