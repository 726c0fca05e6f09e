/** Copies to destinations: few at once, none for ever, none that nobody wants, none that stays behind. */
import * as fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { makeCopies } from "#src/backups/destinations/copies.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import type { BackupOptions } from "#src/backups/options.ts"
import { type Place, PlaceError } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { putSealed } from "#src/backups/repository/transfer.ts"
import { leased } from "#src/loops/leased.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { destination, onStore, type StoreWorld, services, storeWorld } from "./world.ts"

/** A history with objects, of a database that names these destinations, and the carrying without its loops. */
const given = Effect.fnUntraced(function* (
  world: StoreWorld,
  destinationIds: ReadonlyArray<string>,
  objects: number,
  values: Partial<BackupOptions> = {}
) {
  const context = yield* Layer.build(services(world, values))
  const ref = { orgId: uuid(), lineage: uuid() }
  const spec = JSON.stringify({ backup: { destinationIds } })
  yield* onStore(
    world,
    `insert into organization (id, name, slug, billing_status)
       values ('${ref.orgId}', 'one', 'o-${ref.orgId.slice(0, 20)}', 'active');
     insert into resource (org_id, uid, kind, name, spec, managed_by)
       select '${ref.orgId}', id::uuid, 'BackupDestination', id, '{}', 'api'
       from unnest('{${destinationIds.join(",")}}'::text[]) as t(id);
     insert into resource (org_id, uid, kind, name, spec, phase, managed_by)
       values ('${ref.orgId}', '${ref.lineage}', 'Database', 'main', '${spec}', 'ready', 'api')`
  )
  const ledger = Context.get(context, Ledger)
  yield* ledger.ensure(ref, ref.lineage)
  const { local } = Context.get(context, Repository)
  const names = Array.from({ length: objects }, (_, n) => `wal/0000000100000000${String(n).padStart(8, "0")}`)
  const made = yield* Effect.forEach(names, (name) =>
    putSealed(
      local,
      Buffer.alloc(32, 1),
      ref.lineage,
      { name, backupId: null, finishedAt: new Date(0) },
      async function* () {
        yield Buffer.from(name)
      }
    )
  )
  yield* ledger.add(ref, made, destinationIds)
  /** Another process, which looks for what is due when it is told to, or has done something. */
  const start = Effect.gen(function* () {
    const { loop, ...copies } = yield* Effect.provideContext(makeCopies, context)
    const { look } = yield* leased({
      ...loop,
      nextIn: Effect.succeed(undefined),
      lookMs: 3_600_000,
      heartbeatMs: 3_600_000
    })
    return { ...copies, look }
  })
  return { ref, ledger, names, copies: yield* start, start }
})
const copiesWhere = (world: StoreWorld, condition: string) =>
  Effect.map(onStore(world, `select count(*)::int as n from backup_copy where ${condition}`), ([row]) =>
    Number(row?.["n"])
  )
const placeOf = (world: StoreWorld, id: string): Place => {
  const place = world.destinations.get(id)
  if (place === undefined) throw new Error("no destination")
  return place
}
const replaced = (world: StoreWorld, id: string, with_: (real: Place) => Partial<Place>) => {
  const real = placeOf(world, id)
  world.destinations.set(id, { ...real, ...with_(real) })
  return real
}
const keysIn = (dir: string) =>
  fs.existsSync(dir)
    ? fs.readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).length
    : 0
const unreachable = Effect.fail(new PlaceError({ reason: "unreachable", message: "It cannot be reached" }))

describe("copies", { timeout: 600_000 }, () => {
  it.live("are few at once, however many destinations there are, and each destination has its turn", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const all = Array.from({ length: 10 }, () => destination(world))
        let now = 0
        let most = 0
        const seen: Array<string> = []
        // Those that come first go on when four are there, and one more had time to come.
        const four = yield* Deferred.make<void>()
        for (const { id } of all) {
          replaced(world, id, (real) => ({
            put: (key, content) =>
              Effect.gen(function* () {
                seen.push(id)
                most = Math.max(most, ++now)
                if (now === 4)
                  yield* Effect.andThen(Effect.sleep("200 millis"), Deferred.succeed(four, undefined))
                yield* Deferred.await(four)
                return yield* Effect.ensuring(
                  real.put(key, content),
                  Effect.sync(() => now--)
                )
              })
          }))
        }
        const { copies } = yield* given(
          world,
          all.map(({ id }) => id),
          12,
          { copiesAtOnce: 4 }
        )
        yield* eventually(
          "everything is there",
          Effect.andThen(
            copies.look,
            Effect.map(copiesWhere(world, "stored_at is null"), (n) => n === 0)
          )
        )
        assert.strictEqual(most, 4)
        // All had a first batch of four when some had three, but for those who came before the others waited.
        assert.lengthOf(new Set(seen.slice(0, 60)), 10)
      })
    )
  )

  it.live(
    "for a destination that fails are tried one by one, ever more seldom, and all come once it works",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* storeWorld
          const { id, dir } = destination(world)
          let tries = 0
          const real = replaced(world, id, () => ({
            put: () => {
              tries++
              return unreachable
            }
          }))
          const { copies, ref } = yield* given(world, [id], 60)
          const pause = Effect.map(
            onStore(
              world,
              `select failures, extract(epoch from due_at - now())::float8 as seconds,
                 (select count(*)::int from backup_copy where lease is not null) as held from backup_destination_pause`
            ),
            ([row]) => ({
              failures: Number(row?.["failures"] ?? 0),
              seconds: Number(row?.["seconds"]),
              held: Number(row?.["held"])
            })
          )
          yield* copies.look
          // One of each turn that was on its way.
          yield* eventually(
            "all that had begun have failed, and it is left alone",
            Effect.map(pause, ({ failures, held }) => failures === 1 && held === 0 && tries === 3)
          )
          for (let n = 2; n <= 4; n++) {
            const began = performance.now()
            yield* onStore(world, "update backup_destination_pause set due_at = now()")
            // Nobody looks again once it has failed: its pause might be over.
            const { seconds } = yield* eventually(
              `it has failed ${n} times`,
              Effect.gen(function* () {
                const now = yield* pause
                if (now.failures >= n) return now
                yield* copies.look
                return undefined
              })
            )
            assert.strictEqual((yield* pause).failures, n)
            const since = (performance.now() - began) / 1000
            assert.isAtLeast(seconds + since, 2 ** n / 2)
          }
          assert.strictEqual(tries, 3 + 3)
          assert.deepStrictEqual(yield* copies.failing, [{ ...ref, error: "It cannot be reached" }])

          world.destinations.set(id, real)
          yield* onStore(world, "update backup_destination_pause set due_at = now()")
          const now = onStore(
            world,
            "update backup_copy set due_at = now() where due_at > now() and lease is null"
          )
          yield* eventually(
            "everything is there",
            Effect.andThen(
              Effect.andThen(now, copies.look),
              Effect.map(copiesWhere(world, "stored_at is null"), (n) => n === 0)
            )
          )
          assert.strictEqual(keysIn(dir), 60)
          assert.deepStrictEqual(yield* copies.failing, [])
        })
      )
  )

  it.live("that nobody wants any more are forgotten, and are no trouble", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const [gone, stays] = [destination(world), destination(world)]
        let begun = false
        replaced(world, gone.id, (real) => ({
          put: (key, content) => {
            if (begun) return unreachable
            begun = true
            // Its answer does not come back, and it is there.
            return Effect.andThen(real.put(key, content), unreachable)
          }
        }))
        const { copies, ref } = yield* given(world, [gone.id, stays.id], 5)
        yield* copies.look
        yield* eventually(
          "one has all, and the other has failed with what was begun there",
          Effect.gen(function* () {
            const all = yield* copiesWhere(world, `destination_id = '${stays.id}' and stored_at is not null`)
            const failed = yield* copiesWhere(world, `destination_id = '${gone.id}' and error is not null`)
            const held = yield* copiesWhere(world, "lease is not null")
            return all === 5 && failed > 0 && held === 0 && keysIn(gone.dir) === 1
          })
        )
        yield* onStore(world, "update backup_copy set tries = 9 where tries > 0")
        yield* onStore(world, "update backup_destination_pause set failures = 9")
        assert.lengthOf(yield* copies.failing, 1)
        yield* onStore(
          world,
          `update resource set spec = '{"backup": {"destinationIds": ["${stays.id}"]}}' where uid = '${ref.lineage}'`
        )
        assert.deepStrictEqual(yield* copies.failing, [])
        yield* copies.tidy
        assert.strictEqual(yield* copiesWhere(world, `destination_id = '${stays.id}'`), 5)
        assert.strictEqual(keysIn(gone.dir), 1)
        yield* eventually(
          "what had been begun is removed",
          Effect.andThen(
            copies.look,
            Effect.map(copiesWhere(world, `destination_id = '${gone.id}'`), (n) => n === 0)
          )
        )
        assert.strictEqual(keysIn(gone.dir), 0)
      })
    )
  )

  it.live(
    "that come after they were removed do not stay, even when the process that brings them is killed",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* storeWorld
          const { id, dir } = destination(world)
          const [reached, goOn, arrived] = [
            yield* Deferred.make<void>(),
            yield* Deferred.make<void>(),
            yield* Deferred.make<void>()
          ]
          const real = replaced(world, id, (place) => ({
            put: (key, content) =>
              Effect.gen(function* () {
                yield* Deferred.succeed(reached, undefined)
                yield* Deferred.await(goOn)
                const put = yield* place.put(key, content)
                assert.strictEqual(keysIn(dir), 1)
                yield* Deferred.succeed(arrived, undefined)
                return put
              })
          }))
          const { ref, ledger, names, start } = yield* given(world, [id], 1)
          // By its first look. Told to look again, it could be the one who removes it, and so end its own upload.
          yield* eventually("it is sent", Deferred.isDone(reached))
          // Where it may be is known before it is.
          assert.strictEqual(yield* copiesWhere(world, "version = 1 and stored_at is null"), 1)
          // The backup's time has passed, and another process takes it away at the destination.
          yield* ledger.removeObjects(ref, names)
          const other = yield* start
          world.destinations.set(id, real)
          yield* eventually(
            "it is removed",
            Effect.andThen(
              other.look,
              Effect.map(copiesWhere(world, "true"), (n) => n === 0)
            )
          )
          assert.strictEqual(keysIn(dir), 0)
          yield* Deferred.succeed(goOn, undefined)
          yield* eventually("it has arrived", Deferred.isDone(arrived))
          yield* eventually(
            "what has arrived is removed again",
            Effect.andThen(
              other.look,
              Effect.map(copiesWhere(world, "true"), (n) => n === 0 && keysIn(dir) === 0)
            )
          )
        })
      )
  )

  it.live("that arrive although they were interrupted, after they were removed, do not stay", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const { id, dir } = destination(world)
        const [reached, removed, arrived] = [
          yield* Deferred.make<void>(),
          yield* Deferred.make<void>(),
          yield* Deferred.make<void>()
        ]
        const real = replaced(world, id, (place) => ({
          put: (key, content) =>
            Effect.andThen(Deferred.succeed(reached, undefined), Effect.never).pipe(
              Effect.onInterrupt(() =>
                Effect.gen(function* () {
                  yield* Deferred.await(removed)
                  yield* place.put(key, content)
                  assert.strictEqual(keysIn(dir), 1)
                  yield* Deferred.succeed(arrived, undefined)
                })
              )
            )
        }))
        const { copies, ref, ledger, names } = yield* given(world, [id], 1)
        yield* eventually("it is sent", Effect.andThen(copies.look, Deferred.isDone(reached)))
        // The same process removes it, and so ends the upload.
        yield* ledger.removeObjects(ref, names)
        world.destinations.set(id, real)
        yield* copies.look
        yield* eventually(
          "it is removed",
          Effect.map(copiesWhere(world, "true"), (n) => n === 0)
        )
        assert.strictEqual(keysIn(dir), 0)
        yield* Deferred.succeed(removed, undefined)
        yield* eventually("it has arrived", Deferred.isDone(arrived))
        yield* eventually(
          "what has arrived is removed again",
          Effect.andThen(
            copies.look,
            Effect.map(copiesWhere(world, "true"), (n) => n === 0 && keysIn(dir) === 0)
          )
        )
      })
    )
  )
})
