import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import { inject } from "vitest"
import type { Json } from "#schemas/kind.ts"
import { anyPool } from "#schemas/placement.ts"
import { type Claimed, type Recorded, type WaitTarget, WorkStore } from "#src/engine/WorkStore.ts"
import { Db, type Sql } from "#src/store/Db.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { Resources } from "#src/store/Resources.ts"
import { addressOf } from "#src/store/records.ts"
import { actor, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { memory, postgres } from "./work-store/implementations.ts"
import { StoreUnderTest } from "./work-store/setting.ts"
import { workStoreSuite } from "./work-store/suite.ts"

workStoreSuite("in memory", memory)
workStoreSuite("in Postgres", postgres)

layer(postgres, { excludeTestServices: true })("what only Postgres keeps", (it) => {
  const makeOne = Effect.gen(function* () {
    const store = yield* StoreUnderTest
    const work = yield* WorkStore
    const orgId = yield* store.makeOrganization
    const uid = uuid()
    const plain = { uid, kind: `Kind${uid.slice(-12)}`, projectId: null, parentUid: null, secrets: [] }
    yield* store.create(orgId, { ...plain, name: "one", spec: {} })
    const take = Effect.map(work.claimOne(orgId, uid, 30_000, anyPool), Option.getOrThrow)
    return { work, orgId, uid, take }
  })
  const told = (claimed: Claimed, messages: ReadonlyArray<string>): Recorded => ({
    lease: claimed,
    dueIn: 0,
    priority: 1,
    attempt: 1,
    waitingOn: null,
    seen: claimed.seen,
    lastError: null,
    handledRetry: null,
    change: {
      status: null,
      facts: {},
      phase: "provisioning",
      conditions: [],
      differences: [],
      observedGeneration: 1,
      settled: false,
      deleting: false,
      gone: false,
      events: messages.map((message) => ({ type: "Warning", reason: "ReconcileFailed", message }))
    }
  })

  const waiting = (claimed: Claimed, on: WaitTarget): Recorded => {
    const { change, ...rest } = told(claimed, [])
    return { ...rest, dueIn: 3_600_000, waitingOn: on, change: { ...change!, phase: "waiting" } }
  }
  /** One resource, and another one in the same organization that it may wait for. */
  const makeTwo = Effect.gen(function* () {
    const one = yield* makeOne
    const { create } = yield* StoreUnderTest
    const uid = uuid()
    const plain = { uid, kind: `Kind${uid.slice(-12)}`, projectId: null, parentUid: null, secrets: [] }
    yield* create(one.orgId, { ...plain, name: "two", spec: {} })
    const takeOther = Effect.map(one.work.claimOne(one.orgId, uid, 30_000, anyPool), Option.getOrThrow)
    const rooms = [{ kind: `Kind${one.uid.slice(-12)}`, pool: anyPool, room: 1, fullOrgs: [] }]
    const isDue = Effect.map(one.work.claim(rooms, 30_000), (claimed) => claimed.length === 1)
    return { ...one, other: uid, takeOther, isDue }
  })
  /** A transaction that has run `statement` and ends when it is told to. */
  const openTransaction = Effect.fnUntraced(function* <E>(
    statement: (sql: Sql) => Effect.Effect<unknown, E>
  ) {
    const { engine: sql } = yield* Db
    const begun = yield* Deferred.make<number>()
    const end = yield* Deferred.make<void>()
    const fiber = yield* Effect.forkDetach(
      sql.withTransaction(
        Effect.gen(function* () {
          yield* statement(sql)
          const [me] = yield* sql<{ readonly pid: number }>`select pg_backend_pid() as pid`
          yield* Deferred.succeed(begun, me!.pid)
          yield* Deferred.await(end)
        })
      )
    )
    const pid = yield* Effect.raceFirst(
      Deferred.await(begun),
      Effect.andThen(Fiber.join(fiber), Effect.never)
    )
    return {
      /** Until somebody waits for what the transaction has locked. */
      blocks: eventually(
        "the transaction is waited for",
        sql`select from pg_stat_activity where ${pid}::int = any (pg_blocking_pids(pid))`,
        (rows) => rows.length > 0
      ),
      commit: Effect.andThen(Deferred.succeed(end, undefined), Fiber.join(fiber))
    }
  })

  it.effect(
    "what waits says by its address for what, whether or not that exists, and not when it is over",
    () =>
      Effect.gen(function* () {
        const { work, orgId, uid, take, other } = yield* makeTwo
        const { create } = yield* StoreUnderTest
        const resources = yield* Resources
        const projectId = uuid()
        const project = { uid: projectId, kind: "Project", projectId: null, parentUid: null, secrets: [] }
        yield* create(orgId, { ...project, name: "shop", spec: {} })
        const waitsFor = Effect.map(resources.get(orgId, uid), (found) => {
          const { waitingOn } = Option.getOrThrow(found)
          return waitingOn === null ? null : addressOf(waitingOn)
        })
        assert.isNull(yield* waitsFor)
        yield* work.record([waiting(yield* take, other)])
        assert.strictEqual(yield* waitsFor, `Kind${other.slice(-12)}/two`)
        const main = { kind: "Database", projectId, environment: "production", name: "main" }
        yield* work.record([waiting(yield* take, main)])
        assert.strictEqual(yield* waitsFor, "shop/production/Database/main")
        yield* work.record([waiting(yield* take, { ...main, environment: null, projectId: null })])
        assert.strictEqual(yield* waitsFor, "Database/main")
        yield* work.record([told(yield* take, [])])
        assert.isNull(yield* waitsFor)
        yield* work.record([waiting(yield* take, uuid())])
        assert.isNull(yield* waitsFor)
      })
  )

  it.effect("who begins to wait while the change is being stored is woken by it", () =>
    Effect.gen(function* () {
      const { work, take, other, takeOther, isDue } = yield* makeTwo
      const [waiter, changing] = [yield* take, yield* takeOther]
      const lock = yield* openTransaction((sql) => sql`select from resource where uid = ${other} for update`)
      const change = yield* Effect.forkChild(work.record([told(changing, [])]))
      yield* lock.blocks
      yield* work.record([waiting(waiter, other)])
      assert.isFalse(yield* isDue)
      yield* lock.commit
      yield* Fiber.join(change)
      assert.isTrue(yield* isDue)
    })
  )

  it.effect("who is just being stored as waiting when the change is stored looks again", () =>
    Effect.gen(function* () {
      const { work, uid, take, other, takeOther, isDue } = yield* makeTwo
      const [waiter, changing] = [yield* take, yield* takeOther]
      const lock = yield* openTransaction((sql) => sql`select from work where uid = ${uid} for update`)
      const wait = yield* Effect.forkChild(work.record([waiting(waiter, other)]))
      yield* lock.blocks
      yield* work.record([told(changing, [])])
      yield* lock.commit
      yield* Fiber.join(wait)
      assert.isTrue(yield* isDue)
    })
  )

  it.effect(
    "a change that had its number but had not committed when one looked counts as a change since",
    () =>
      Effect.gen(function* () {
        const { work, take, other, isDue } = yield* makeTwo
        const late = yield* openTransaction(
          (
            sql
          ) => sql`update resource set revision = nextval('resource_revision'), txid = pg_current_xact_id()
          where uid = ${other}`
        )
        const { engine: sql } = yield* Db
        yield* sql`select nextval('resource_revision')`
        const waiter = yield* take
        yield* late.commit
        yield* work.record([waiting(waiter, other)])
        assert.isTrue(yield* isDue)
      })
  )

  it.effect("who waits for something that is abandoned looks again", () =>
    Effect.gen(function* () {
      const { work, orgId, take, other, isDue } = yield* makeTwo
      const interventions = yield* Interventions
      yield* work.record([waiting(yield* take, other)])
      assert.isFalse(yield* isDue)
      yield* interventions.abandon(orgId, other, "a test", actor)
      assert.isTrue(yield* isDue)
    })
  )

  it.effect("what is being changed is leased once the change is there, and with it", () =>
    Effect.gen(function* () {
      const { work, orgId, uid, take, isDue } = yield* makeTwo
      const change = yield* openTransaction(
        (sql) => sql`
          with asked as (update work set again = true where uid = ${uid})
          update resource set generation = generation + 1 where uid = ${uid}`
      )
      assert.isTrue(Option.isNone(yield* work.claimOne(orgId, uid, 30_000, anyPool)))
      assert.isFalse(yield* isDue)
      yield* change.commit
      assert.strictEqual((yield* take).generation, 2)
    })
  )

  it.effect(
    "a process of the former release, which takes tokens from the sequence, gets one that is new",
    () =>
      Effect.gen(function* () {
        const { work, take, uid } = yield* makeOne
        const { engine: sql } = yield* Db
        const first = yield* take
        yield* work.release([first])
        const [row] = yield* sql<{ readonly token: string }>`
        update work set lease_token = nextval('lease_token'), lease_until = now() + interval '1 hour'
        where uid = ${uid} returning lease_token::text as token`
        assert.isTrue(BigInt(row?.token ?? 0) > first.token)
        yield* sql`update work set lease_token = null, lease_until = null where uid = ${uid}`
        assert.isTrue((yield* take).token > BigInt(row?.token ?? 0))
      })
  )

  it.effect("what cannot be loaded is not leased", () =>
    Effect.gen(function* () {
      const { work, uid, isDue } = yield* makeTwo
      const { engine: sql } = yield* Db
      const [database] = yield* sql<{ readonly name: string }>`select current_database() as name`
      const url = new URL(inject("databaseUrl"))
      url.pathname = `/${database!.name}`
      const owner = yield* PgClient.makeClient({ url: Redacted.make(url.href) })
      yield* owner`alter table resource rename to hidden`
      const kind = `Kind${uid.slice(-12)}`
      const failed = yield* Effect.flip(
        work.claim([{ kind, pool: anyPool, room: 1, fullOrgs: [] }], 3_600_000)
      )
      yield* owner`alter table hidden rename to resource`
      assert.strictEqual(failed._tag, "StoreUnavailable")
      assert.isTrue(yield* isDue)
    }).pipe(Effect.provide(Reactivity.layer), Effect.scoped)
  )

  it.effect("a row that makes no sense does not keep the others of its claim from their turn", () =>
    Effect.gen(function* () {
      const { work, uid, other } = yield* makeTwo
      const { engine: sql } = yield* Db
      yield* sql`update resource set phase = 'odd' where uid = ${other}`
      const kinds = [uid, other].map((one) => ({
        kind: `Kind${one.slice(-12)}`,
        pool: anyPool,
        room: 1,
        fullOrgs: []
      }))
      const claimed = yield* work.claim(kinds, 30_000)
      assert.deepStrictEqual(
        claimed.map((one) => one.uid),
        [uid]
      )
    })
  )

  it.effect("a clock that is set back makes no lower token", () =>
    Effect.gen(function* () {
      const { take, uid } = yield* makeOne
      const { engine: sql } = yield* Db
      const later = 8_000_000_000_000_000_000n
      yield* sql`update work set last_token = ${String(later)}::bigint where uid = ${uid}`
      assert.strictEqual((yield* take).token, later + 1n)
    })
  )

  it.effect(
    "what a newer version reported in a form of its own is reported anew, as far as it is understood",
    () =>
      Effect.gen(function* () {
        const { take, uid } = yield* makeOne
        const { engine: sql } = yield* Db
        const condition = {
          type: "Ready" as const,
          status: "true" as const,
          reason: "Converged",
          message: "Ready",
          lastTransitionAt: new Date(0).toISOString(),
          observedGeneration: 1
        }
        const difference = { field: "/size", message: "is 1" }
        for (const settled of [true, false]) {
          yield* sql`update resource set settled = ${settled}, phase = 'ready', observed_generation = generation,
          conditions = ${sql.json([{ type: "Replicated" }, condition])}::jsonb,
          differences = ${sql.json([{ path: "/size" }, difference])}::jsonb where uid = ${uid}`
          const claimed = yield* take
          assert.strictEqual(claimed.settled, settled)
          assert.deepStrictEqual(claimed.reported, {
            conditions: [condition],
            differences: [difference]
          })
          yield* sql`update work set lease_until = null, lease_token = null where uid = ${uid}`
        }
      })
  )

  it.effect("a repeat of the newest event is counted, and what comes between begins a new entry", () =>
    Effect.gen(function* () {
      const { work, orgId, uid, take } = yield* makeOne
      const resources = yield* Resources
      for (const messages of [["a"], ["a"], ["a", "b"], ["a"], []])
        yield* work.record([told(yield* take, messages)])
      const events = yield* resources.events(orgId, uid, 50)
      assert.deepStrictEqual(
        events
          .toReversed()
          .filter((event) => event.reason === "ReconcileFailed")
          .map((event) => [event.message, event.count]),
        [
          ["a", 3],
          ["b", 1],
          ["a", 1]
        ]
      )
    })
  )

  it.effect("a stale result leaves no event", () =>
    Effect.gen(function* () {
      const { work, orgId, uid, take } = yield* makeOne
      const store = yield* StoreUnderTest
      const resources = yield* Resources
      const stale = yield* take
      yield* store.advance(31_000)
      yield* take
      yield* work.record([told(stale, ["too late"])])
      const events = yield* resources.events(orgId, uid, 50)
      assert.notInclude(
        events.map((event) => event.message),
        "too late"
      )
    })
  )

  it.effect("status, differences and conditions come back as they were recorded", () =>
    Effect.gen(function* () {
      const { work, take } = yield* makeOne
      const first = yield* take
      const status: Json = { nested: { list: [1, "two", null], empty: {} }, text: 'quotes " and , commas' }
      const conditions = [
        {
          type: "Ready" as const,
          status: "true" as const,
          reason: "Converged",
          message: "It's ready, as asked",
          lastTransitionAt: new Date(0).toISOString(),
          observedGeneration: 1
        }
      ]
      const differences = [{ field: "/size", message: "is 1 and should be 2" }]
      const { change, ...rest } = told(first, [])
      yield* work.record([
        { ...rest, change: { ...change!, status, conditions, differences, phase: "ready", settled: true } }
      ])
      const second = yield* take
      assert.deepStrictEqual(second.status, status)
      assert.isTrue(second.settled)
      assert.deepStrictEqual(second.reported, { conditions, differences })
    })
  )
})
