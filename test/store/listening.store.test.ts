import { assert, it, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { inject } from "vitest"
import { Db, listenerName } from "#src/store/Db.ts"
import { asAdministrator } from "#test/setup/administrator.ts"
import { migratedDatabase, testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { postgresProxy } from "#test/setup/postgres-proxy.ts"
import { eventually } from "#test/setup/wait.ts"

/** A channel that nobody else has. */
const aChannel = () => `test_${uuid()}`

/** What a subscriber has heard, from when it subscribed. */
const subscribe = Effect.fnUntraced(function* (db: Db["Service"], channel: string) {
  const heard: Array<string | undefined> = []
  const fiber = yield* Effect.forkScoped(
    Stream.runForEach(db.notifications(channel), (payload) => Effect.sync(() => void heard.push(payload)))
  )
  const hears = (count: number) =>
    eventually(
      `${count} on ${channel}`,
      Effect.sync(() => heard),
      ({ length }) => length >= count
    )
  return { heard, hears, fiber, leave: Fiber.interrupt(fiber) }
})

const say = Effect.fnUntraced(function* (channel: string, payload: string) {
  const { engine: sql } = yield* Db
  yield* sql`select pg_notify(${channel}, ${payload})`
})

interface Listener {
  readonly pid: number
  readonly query: string
}
/** A statement about the connections that listen to the database of the test. Who is not the server's owner sees little of them. */
const ofListeners = Effect.fnUntraced(function* (select: string) {
  const { engine: sql } = yield* Db
  const [here] = yield* sql<{ readonly name: string }>`select current_database() as name`
  return yield* asAdministrator(inject("databaseUrl"))<Listener>(
    `select ${select} from pg_stat_activity where datname = '${here?.name}' and application_name = '${listenerName}'`
  )
})
const listeners = ofListeners("pid, query")
const cut = ofListeners("pg_terminate_backend(pid, 10000)")

layer(testDb(), { excludeTestServices: true })("what is announced", (it) => {
  it.effect("is heard by everybody who listens to its channel, over one connection", () =>
    Effect.gen(function* () {
      const db = yield* Db
      const [one, other] = [aChannel(), aChannel()]
      const first = yield* subscribe(db, one)
      const second = yield* subscribe(db, one)
      const third = yield* subscribe(db, other)
      for (const { hears } of [first, second, third]) yield* hears(1)
      yield* say(one, "a")
      yield* say(other, "b")
      yield* say(one, "c")
      for (const { hears } of [first, second]) yield* hears(3)
      yield* third.hears(2)
      assert.deepStrictEqual(first.heard, [undefined, "a", "c"])
      assert.deepStrictEqual(second.heard, [undefined, "a", "c"])
      assert.deepStrictEqual(third.heard, [undefined, "b"])
      assert.strictEqual((yield* listeners).length, 1)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "is said to who comes to a channel that is listened to already: anything may have been before",
    () =>
      Effect.gen(function* () {
        const db = yield* Db
        const channel = aChannel()
        const first = yield* subscribe(db, channel)
        yield* first.hears(1)
        const late = yield* subscribe(db, channel)
        yield* late.hears(1)
        assert.deepStrictEqual(late.heard, [undefined])
        assert.deepStrictEqual(first.heard, [undefined], "it is woken by nobody else's coming")
      }).pipe(Effect.scoped)
  )

  it.effect("is listened to until the last subscriber leaves, and heard again by who comes later", () =>
    Effect.gen(function* () {
      const db = yield* Db
      const [kept, left] = [aChannel(), aChannel()]
      const stays = yield* subscribe(db, kept)
      const first = yield* subscribe(db, left)
      const last = yield* subscribe(db, left)
      for (const { hears } of [stays, first, last]) yield* hears(1)
      yield* first.leave
      yield* say(left, "a")
      yield* last.hears(2)
      assert.deepStrictEqual(first.heard, [undefined])
      yield* last.leave
      yield* eventually("the server is told", listeners, (all) =>
        all.some(({ query }) => query === `UNLISTEN "${left}"`)
      )
      const again = yield* subscribe(db, left)
      yield* again.hears(1)
      yield* say(left, "b")
      yield* again.hears(2)
      assert.deepStrictEqual(again.heard, [undefined, "b"])
      yield* say(kept, "c")
      yield* stays.hears(2)
      assert.deepStrictEqual(stays.heard, [undefined, "c"])
      yield* Effect.forEach([stays, again], ({ leave }) => leave)
      yield* eventually("nobody keeps the connection", listeners, (all) => all.length === 0)
    }).pipe(Effect.scoped)
  )

  it.effect("may have been missed while the connection was lost: everybody is woken and listens again", () =>
    Effect.gen(function* () {
      const db = yield* Db
      const [one, other] = [aChannel(), aChannel()]
      const first = yield* subscribe(db, one)
      const second = yield* subscribe(db, other)
      for (const { hears } of [first, second]) yield* hears(1)
      for (const round of [1, 2]) {
        const [before] = yield* listeners
        yield* cut
        for (const { hears } of [first, second]) yield* hears(round * 2)
        yield* say(one, `${round}`)
        yield* say(other, `${round}`)
        for (const { hears } of [first, second]) yield* hears(round * 2 + 1)
        const [now, ...more] = yield* listeners
        assert.notStrictEqual(now?.pid, before?.pid)
        assert.isEmpty(more)
      }
      for (const { heard } of [first, second])
        assert.deepStrictEqual(heard, [undefined, undefined, "1", undefined, "2"])
    }).pipe(Effect.scoped)
  )

  it.effect("is not waited for by who is slow: it is told in the end that it missed something", () =>
    Effect.gen(function* () {
      const db = yield* Db
      const channel = aChannel()
      const many = 10_050
      const heardSlowly: Array<string | undefined> = []
      let goOn = () => {}
      const mayGoOn = new Promise<void>((resolve) => {
        goOn = resolve
      })
      yield* Effect.forkScoped(
        Stream.runForEach(db.notifications(channel), (payload) => {
          heardSlowly.push(payload)
          return Effect.promise(() => mayGoOn)
        })
      )
      const quick = yield* subscribe(db, channel)
      yield* quick.hears(1)
      yield* db.engine`select pg_notify(${channel}, n::text) from generate_series(1, ${many}::int) n`
      yield* quick.hears(many + 1)
      assert.strictEqual(new Set(quick.heard).size, many + 1)
      goOn()
      yield* eventually(
        "the slow one has read the last",
        Effect.sync(() => heardSlowly.at(-1)),
        (last) => last === `${many}`
      )
      assert.isBelow(heardSlowly.length, many)
      assert.include(heardSlowly.slice(1), undefined)
    }).pipe(Effect.scoped)
  )
})

it.live(
  "nothing is heard, and no connection stays, after the scope closed; also while the store is away",
  () =>
    Effect.gen(function* () {
      const url = yield* migratedDatabase
      const watching = yield* Layer.build(Layer.fresh(Db.layer({ url })))
      const proxy = yield* postgresProxy(url)
      for (const away of [false, true]) {
        const scope = yield* Scope.make()
        const built = yield* Layer.buildWithScope(Layer.fresh(Db.layer({ url: proxy.url })), scope)
        const channel = aChannel()
        const subscriber = yield* subscribe(Context.get(built, Db), channel)
        yield* subscriber.hears(1)
        if (away) yield* proxy.goAway
        yield* Scope.close(scope, Exit.void)
        if (away) yield* proxy.comeBack
        yield* eventually(
          "no connection listens",
          Effect.provide(listeners, watching),
          (all) => all.length === 0
        )
        yield* Effect.provide(say(channel, "late"), watching)
        assert.deepStrictEqual(subscriber.heard, [undefined])
      }
    }).pipe(Effect.scoped)
)

it.live("a store that was away is listened to again, as often as it goes", () =>
  Effect.gen(function* () {
    const url = yield* migratedDatabase
    const proxy = yield* postgresProxy(url)
    const built = yield* Layer.build(Layer.fresh(Db.layer({ url: proxy.url })))
    const watching = yield* Layer.build(Layer.fresh(Db.layer({ url })))
    const channel = aChannel()
    const subscriber = yield* subscribe(Context.get(built, Db), channel)
    yield* subscriber.hears(1)
    for (const round of [1, 2, 3]) {
      yield* proxy.goAway
      // Comes while nothing is there.
      const late = yield* subscribe(Context.get(built, Db), aChannel())
      yield* proxy.comeBack
      yield* subscriber.hears(2 * round)
      yield* late.hears(1)
      yield* Effect.provide(say(channel, `${round}`), watching)
      yield* subscriber.hears(2 * round + 1)
    }
    assert.deepStrictEqual(subscriber.heard, [undefined, undefined, "1", undefined, "2", undefined, "3"])
  }).pipe(Effect.scoped)
)
