import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { ExternalCallHook } from "#src/engine/external-call.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { crashAfter } from "#test/reconcilers/suite.ts"
import {
  asApplication,
  type DatabaseResource,
  type DatabaseWorld,
  databaseRemains,
  databaseWorld,
  disturb,
  folderOf,
  makeDatabase
} from "#test/setup/databases.ts"
import { processesNaming } from "#test/setup/processes.ts"
import {
  becomesTrue,
  everywhere,
  filled,
  finishSegments,
  freeze,
  killServer,
  postmaster,
  rowsIn,
  seen,
  settle,
  standby,
  statusOf
} from "#test/setup/replicas.ts"

/** Each has a machine of its own, and mostly waits for it. */
const minutes = (count: number) => ({ timeout: count * 60_000, concurrent: true })

const insert = (world: DatabaseWorld, resource: DatabaseResource) =>
  asApplication(world, resource, (sql) => sql`insert into ledger values (0)`)

const dataOf = (world: DatabaseWorld, resource: DatabaseResource) =>
  path.join(folderOf(world, resource), "data")
const lose = (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.sync(() => fs.rmSync(dataOf(world, resource), { recursive: true, force: true, maxRetries: 10 }))

it.live(
  "when the data folder of a running primary is deleted, or is damaged, a standby takes its place, under the same address and password",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = yield* filled(world)
      const before = statusOf(yield* seen(world, resource))
      const orphan = postmaster(world, resource)
      yield* lose(world, resource)
      const looked = yield* seen(world, { ...resource, status: before })
      assert.isTrue(looked._tag === "Present" && !looked.ready && looked.reason === "FailingOver")
      // Whoever looks before it is ready again is told nothing, so that it is not taken for told.
      const { hook } = crashAfter(1, "postgres.endFailover")
      yield* Effect.exit(settle(world, resource).pipe(Effect.provideService(ExternalCallHook, hook)))
      const between = yield* seen(world, { ...resource, status: before })
      assert.isTrue(between._tag === "Present" && !between.ready)
      assert.isUndefined(statusOf(between).failover)
      yield* settle(world, resource)
      assert.isFalse(
        processesNaming(resource.uid).some(({ pid }) => pid === orphan),
        "the old server has ended"
      )
      assert.strictEqual(yield* rowsIn(world, resource), 1000)
      const after = yield* seen(world, { ...resource, status: statusOf(between) })
      const status = statusOf(after)
      assert.deepStrictEqual([status.host, status.port], [before.host, before.port])
      assert.strictEqual(after._tag === "Present" ? after.note?.reason : undefined, "FailedOver")
      assert.isDefined(status.failover)
      const again = yield* seen(world, { ...resource, status })
      assert.isTrue(again._tag === "Present" && again.ready)
      const note = again._tag === "Present" ? again.note?.reason : undefined
      assert.notStrictEqual(note, "FailedOver", "it is told once")

      // Both standbys follow the new primary.
      yield* insert(world, resource)
      yield* everywhere(world, resource, 1001)
      // The new timeline is archived from its beginning.
      yield* becomesTrue(
        "the history of the new timeline is archived",
        Effect.sync(() => fs.existsSync(path.join(folderOf(world, resource), "archive", "00000002.history")))
      )

      // One that cannot be started again and again gives way as well; the other standby goes on.
      const standbys = [1, 2].map((number) => standby(world, resource, number))
      const folders = standbys.map((one) => fs.statSync(dataOf(world, one)).ino)
      yield* killServer(world, resource)
      fs.truncateSync(path.join(dataOf(world, resource), "global", "pg_control"), 100)
      yield* settle(world, resource)
      assert.strictEqual(yield* rowsIn(world, resource), 1001)
      const { failover } = statusOf(yield* seen(world, resource))
      const survivor = failover?.replica === 1 ? 2 : 1
      assert.strictEqual(fs.statSync(dataOf(world, standbys[survivor - 1]!)).ino, folders[survivor - 1])
      const aside = fs.readdirSync(folderOf(world, resource)).filter((name) => name.startsWith("failed-"))
      assert.lengthOf(aside, 1)
      yield* insert(world, resource)
      yield* everywhere(world, resource, 1002)

      // It is not kept for ever.
      yield* settle(world, resource, { keepFailedMs: 0 })
      assert.isFalse(fs.existsSync(path.join(folderOf(world, resource), aside[0]!)))

      yield* settle(world, { ...resource, deleting: true })
      for (const one of [resource, standby(world, resource, 1), standby(world, resource, 2)])
        assert.deepStrictEqual(yield* databaseRemains(world, one), [])
    }).pipe(Effect.scoped),
  minutes(12)
)

it.live(
  "without a standby, lost data is never replaced by an empty database",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = { ...makeDatabase(world), fence: 1n }
      yield* settle(world, resource)
      const status = statusOf(yield* seen(world, resource))
      process.kill(postmaster(world, resource), "SIGKILL")
      yield* lose(world, resource)
      const exit = yield* Effect.exit(settle(world, { ...resource, status, fence: 2n }, { settleMs: 3_000 }))
      assert.match(Exit.isFailure(exit) ? Cause.pretty(exit.cause) : "", /svc db restore brings back/)
      assert.isFalse(fs.existsSync(dataOf(world, resource)))
    }).pipe(Effect.scoped),
  minutes(8)
)

/** What a failover does, in its order. */
const acts = [
  "postgres.endPrimary",
  "postgres.beginFailover",
  "postgres.takeStandby",
  "postgres.putStandbyInPlace",
  "postgres.endFailover",
  "postgres.start"
]

campaign(
  it.live,
  "failover-deaths",
  "a control plane that dies after any act of a failover is followed by one that ends it",
  { roundMs: 1_500_000 },
  Effect.fnUntraced(function* ({ full }) {
    const hits: Array<string> = []
    const follows = Effect.fnUntraced(function* (
      world: DatabaseWorld,
      resource: DatabaseResource,
      rows: number
    ) {
      yield* settle(world, resource)
      assert.strictEqual(yield* rowsIn(world, resource), rows - 1, `after ${hits.at(-1)}`)
      yield* insert(world, resource)
      yield* everywhere(world, resource, rows)
    })
    if (!full) {
      // In one failover they die one after another, each one act further.
      const world = yield* databaseWorld
      const resource = yield* filled(world)
      yield* lose(world, resource)
      for (const act of acts) {
        const { hook, hit } = crashAfter(1, act)
        yield* Effect.exit(settle(world, resource).pipe(Effect.provideService(ExternalCallHook, hook)))
        hits.push(hit() ?? `not ${act}`)
      }
      yield* follows(world, resource, 1001)
      return assert.deepStrictEqual(hits, acts)
    }
    // After the copy of a standby has begun, it goes on as at its creation.
    let last = Number.POSITIVE_INFINITY
    // In three worlds beside each other: after every act, in a failover of its own.
    const from = Effect.fnUntraced(function* (first: number) {
      const world = yield* databaseWorld
      const resource = yield* filled(world)
      let rows = 1000
      for (let n = first; n <= last; n += 3) {
        yield* lose(world, resource)
        const crash = crashAfter(n)
        let copying = false
        const hook: ExternalCallHook = {
          ...crash.hook,
          after: (name, effect) => {
            copying ||= name === "hydration.begin"
            return crash.hook.after(name, effect)
          }
        }
        yield* Effect.exit(settle(world, resource).pipe(Effect.provideService(ExternalCallHook, hook)))
        const hit = crash.hit()
        if (hit !== undefined) hits.push(hit)
        yield* follows(world, resource, ++rows)
        if (hit === undefined || copying) last = Math.min(last, n)
      }
    })
    yield* Effect.forEach([1, 2, 3], from, { concurrency: 3, discard: true })
    assert.includeMembers(hits, acts)
  })
)

/**
 * Finished segments of the log, and a checkpoint after which those that nobody is known to need are removed; `far`: until
 * the first of them is.
 */
const logGoesOn = (world: DatabaseWorld, resource: DatabaseResource, segments: number, far: boolean) =>
  Effect.gen(function* () {
    const finished = () =>
      fs
        .readdirSync(path.join(dataOf(world, resource), "pg_wal"))
        .filter((name) => /^[0-9A-F]{24}$/.test(name))
        .sort()
    // Of the timeline that was begun last.
    const timeline = finished().at(-1)?.slice(0, 8) ?? ""
    const [first = ""] = finished().filter((name) => name.startsWith(timeline))
    assert.notStrictEqual(first, "")
    yield* insert(world, resource)
    yield* finishSegments(world, resource, segments)
    yield* disturb("checkpoint")(world, resource)
    if (far)
      yield* becomesTrue(
        "the log goes, which may have to be archived before",
        Effect.map(disturb("checkpoint")(world, resource), () => !finished().includes(first))
      )
  })

campaign(
  it.live,
  "failover-left-behind",
  "a standby that outlives a failover goes on, or is copied again; what cannot take over is never replaced by an empty database",
  { roundMs: 720_000, rounds: 0 },
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = yield* filled(world)
      const second = standby(world, resource, 2)
      // It is away, so that the other one is chosen.
      const failOverWithout = Effect.fnUntraced(function* () {
        const thaw = freeze(postmaster(world, second))
        yield* lose(world, resource)
        const { hook } = crashAfter(1, "postgres.start")
        yield* Effect.exit(settle(world, resource).pipe(Effect.provideService(ExternalCallHook, hook)))
        return thaw
      })
      const folder = () => fs.statSync(dataOf(world, second)).ino
      let rows = 1000
      // It goes on, whatever was written before it has a slot again; and is copied when the log has gone on for too long.
      for (const { segments, copied } of [
        { segments: 3, copied: false },
        { segments: 20, copied: true }
      ]) {
        const before = folder()
        const thaw = yield* failOverWithout()
        yield* logGoesOn(world, resource, segments, copied)
        thaw()
        yield* settle(world, resource)
        yield* everywhere(world, resource, ++rows)
        assert.strictEqual(folder() !== before, copied)
      }

      // One that has not followed since the last failover does not begin a second history of the same name.
      const thaw = yield* failOverWithout()
      yield* insert(world, resource)
      yield* lose(world, resource)
      thaw()
      const refused = yield* Effect.exit(settle(world, resource, { settleMs: 5_000 }))
      const why = Exit.isFailure(refused) ? String(Cause.squash(refused.cause)) : ""
      assert.match(why, /has not followed since the last failover/)
      assert.isFalse(fs.existsSync(dataOf(world, resource)))
      assert.strictEqual(yield* rowsIn(world, second), rows, "what there is can still be read")

      // Nor does one whose data cannot be used yet.
      yield* killServer(world, second)
      fs.truncateSync(path.join(dataOf(world, second), "global", "pg_control"), 100)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(settle(world, resource, { settleMs: 5_000 }))))
      assert.isFalse(fs.existsSync(dataOf(world, resource)))
      assert.isTrue(fs.existsSync(dataOf(world, second)))
    })
)
