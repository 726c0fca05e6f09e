/** What can go wrong while a branch is filled, and what happens to it afterwards. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import type { DatabaseBranchStatus } from "#schemas/database-branch.ts"
import { ExternalCallHook } from "#src/engine/external-call.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { HydrationHook } from "#src/infra/postgres/Hydrations.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { look, recorded } from "#test/reconcilers/settle.ts"
import { crashAfter } from "#test/reconcilers/suite.ts"
import {
  asServer,
  type BranchResource,
  type BranchWorld,
  branchReconciler,
  branchWorld,
  makeBranch,
  settleBranch
} from "#test/setup/branches.ts"
import {
  asApplication,
  databaseReconciler,
  databaseRemains,
  databaseServices,
  folderOf,
  settleDatabase
} from "#test/setup/databases.ts"
import { killNaming, killNamingWithChildren, processesNaming, signal } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"

let fence = 100n

/** As the engine goes on, with what it has recorded of the last look, until `enough` says so. */
const drive = (
  world: BranchWorld,
  start: BranchResource,
  enough: (seen: { readonly status: DatabaseBranchStatus; readonly ready: boolean } | undefined) => boolean,
  onLook: Effect.Effect<void> = Effect.void
) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("DatabaseBranch")!
    let resource = { ...start, fence: ++fence }
    const said: Array<string> = []
    for (;;) {
      yield* onLook
      const seen = yield* look(reconciler, resource)
      if (seen._tag === "Present") {
        const status = seen.status as DatabaseBranchStatus
        if (enough({ status, ready: seen.ready })) return { status, said }
        resource = recorded(resource, seen)
        if (!resource.deleting && seen.differences.length === 0) {
          yield* Effect.sleep(
            Math.min(100, Duration.toMillis(Duration.fromInputUnsafe(seen.pollAfter ?? 100)))
          )
          continue
        }
      } else if (resource.deleting) return { status: undefined, said }
      const step = resource.deleting ? reconciler.remove : reconciler.converge
      const failed = yield* Effect.flip(step(resource, seen)).pipe(Effect.option)
      if (failed._tag === "Some") {
        said.push(`${failed.value._tag}: ${failed.value.message}`)
        if (failed.value._tag === "Terminal") return { status: undefined, said }
      }
    }
  }).pipe(Effect.provide(branchReconciler(world), { local: true }), Effect.timeout("5 minutes"), Effect.orDie)

const isReady = (seen: { readonly ready: boolean } | undefined) => seen?.ready === true
const rows = (world: BranchWorld, resource: BranchResource) =>
  Effect.map(
    asApplication(world, asServer(world, resource), (sql) => sql`select n from ledger order by n`),
    (found) => found.map(({ n }) => Number(n))
  )
const numbers = (count: number) => Array.from({ length: count }, (_, index) => index + 1)
const halfMade = (world: BranchWorld, { uid }: BranchResource) =>
  fs.readdirSync(folderOf(world, { uid })).filter((name) => name.startsWith("hydrating-"))

/** The steps of a copy, in their order. */
const steps = ["begin", "copy", "replay", "hand over"]

/** As if the process that filled it had been killed when the data had its name already. */
const leftoversGo = Effect.fnUntraced(function* (world: BranchWorld, resource: BranchResource) {
  const folder = folderOf(world, { uid: resource.uid })
  const file = path.join(folder, "hydration.json")
  const owner = { pid: 2 ** 22 + 1, process: "killed" }
  fs.mkdirSync(path.join(folder, "hydrating-left"))
  fs.writeFileSync(
    file,
    JSON.stringify({ ...JSON.parse(fs.readFileSync(file, "utf8")), state: "running", owner })
  )
  yield* Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("DatabaseBranch")!
    const now = { ...resource, fence: ++fence }
    const seen = yield* look(reconciler, now)
    if (seen._tag === "Absent") return assert.fail("the branch is gone")
    assert.deepStrictEqual([seen.ready, seen.differences, seen.maintenance?.length], [true, [], 1])
    yield* reconciler.converge(now, seen)
    assert.deepStrictEqual((yield* look(reconciler, now))._tag === "Present" && halfMade(world, resource), [])
  }).pipe(Effect.provide(branchReconciler(world), { local: true }), Effect.orDie)
  assert.isAbove((yield* rows(world, resource)).length, 0)
})

const brokenAt = (step: string, fault: Effect.Effect<void>) =>
  Effect.provideService(HydrationHook, (name) => (name === step ? fault : Effect.void))

const failsAt = Effect.fnUntraced(function* (world: BranchWorld, step: string) {
  const resource = makeBranch(world)
  let failures = 0
  const fault = Effect.suspend(() => (failures++ === 0 ? Effect.die(new Error("a fault")) : Effect.void))
  const { said, status } = yield* drive(world, resource, isReady).pipe(brokenAt(step, fault))
  assert.strictEqual(failures, 2, step)
  assert.match(said.join("\n"), new RegExp(`Retryable: .*at the step "${step}"`))
  assert.deepStrictEqual([status?.failure, status?.hydrated], [null, true])
  assert.deepStrictEqual(halfMade(world, resource), [])
  assert.deepStrictEqual(yield* rows(world, resource), numbers(1_000))
})

const stopsAt = Effect.fnUntraced(function* (world: BranchWorld, step: string) {
  const resource = makeBranch(world)
  const reached = yield* Deferred.make<void>()
  const stuck = drive(world, resource, isReady).pipe(
    brokenAt(step, Effect.andThen(Deferred.succeed(reached, undefined), Effect.never))
  )
  yield* Effect.raceFirst(stuck, Deferred.await(reached))
  yield* drive(world, resource, isReady)
  assert.deepStrictEqual(yield* rows(world, resource), numbers(1_000), step)
  assert.deepStrictEqual(halfMade(world, resource), [])
})

const isDeletedAt = Effect.fnUntraced(function* (world: BranchWorld, step: string) {
  const resource = makeBranch(world)
  const reached = yield* Deferred.make<void>()
  // The same process goes on, and the copy is in the middle of a step.
  yield* Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("DatabaseBranch")!
    const run = { ...resource, fence: ++fence }
    while (!(yield* Deferred.isDone(reached))) {
      const seen = yield* look(reconciler, run)
      if (seen._tag === "Absent" || seen.differences.length > 0) yield* reconciler.converge(run, seen)
      yield* Effect.sleep("20 millis")
    }
    const last = { ...resource, fence: ++fence, deleting: true }
    for (let seen = yield* look(reconciler, last); seen._tag === "Present"; ) {
      yield* reconciler.remove(last, seen)
      seen = yield* look(reconciler, last)
    }
  }).pipe(
    brokenAt(step, Effect.andThen(Deferred.succeed(reached, undefined), Effect.never)),
    Effect.provide(branchReconciler(world), { local: true }),
    Effect.timeout("5 minutes")
  )
  assert.deepStrictEqual(yield* databaseRemains(world, asServer(world, resource)), [], step)
})

campaign(
  it.live,
  "copy-faults",
  "whichever step of a copy fails, never ends or is overtaken by a deletion, nothing half-made is left",
  // The tests of one copy below meet each fault at some of the steps.
  { rounds: 0, roundMs: 1_200_000 },
  Effect.fnUntraced(function* ({ seed }) {
    const random = new Seeded(seed)
    const world = yield* branchWorld
    const faults = Array.from({ length: 6 }, () => {
      const happens = random.pick([failsAt, stopsAt, isDeletedAt]) ?? failsAt
      return happens(world, random.pick(steps) ?? "copy")
    })
    yield* Effect.all(faults, { concurrency: random.int(1, 3) })
  })
)

/** The writes of a promotion that nothing else does. */
const acts = ["takeIn", "setAside", "putInPlace", "recordLineage"].map((act) => `postgres.${act}`)

campaign(
  it.live,
  "promotion-deaths",
  "a promotion that dies after any of its steps ends with all data in its place and none lost",
  { roundMs: 1_800_000 },
  Effect.fnUntraced(function* ({ full }) {
    const names: Array<string> = []
    // One promotion after the other of the same database.
    const world = yield* branchWorld
    for (let n = 1; ; n++) {
      const [theirs, ours] = [-2 * n, -2 * n - 1]
      const branch = makeBranch(world)
      yield* settleBranch(world, { ...branch, fence: ++fence })
      yield* asApplication(
        world,
        asServer(world, branch),
        (sql) => sql`insert into ledger values (${theirs})`
      )
      yield* asApplication(world, world.source, (sql) => sql`insert into ledger values (${ours})`)
      const kept = makeBranch(world, { source: { kind: "replaced" } })
      const promoted = { ...branch, spec: { ...branch.spec, promotedTo: world.source.uid } }
      const database = {
        ...world.source,
        spec: { ...world.source.spec, lineage: branch.uid, keptAs: kept.uid }
      }
      // After the n-th write; or for `npm test` in one promotion one after another, each one act further.
      const deaths = full ? [crashAfter(n)] : acts.map((act) => crashAfter(1, act))
      for (const { hook } of deaths) {
        yield* Effect.exit(
          settleDatabase(world, { ...database, fence: ++fence }).pipe(
            Effect.provideService(ExternalCallHook, hook)
          )
        )
        // The others look at it in between, as they may at any time, and touch nothing that is not theirs.
        yield* Effect.gen(function* () {
          const { reconciler } = (yield* Registry).registrations.get("DatabaseBranch")!
          for (const one of [promoted, kept]) {
            const run = { ...one, fence: ++fence }
            const seen = yield* Effect.option(look(reconciler, run))
            if (seen._tag === "Some" && seen.value._tag === "Present" && seen.value.differences.length > 0)
              yield* Effect.ignore(reconciler.converge(run, seen.value))
          }
        }).pipe(Effect.provide(branchReconciler(world), { local: true }))
      }
      const hits = deaths.flatMap(({ hit }) => hit() ?? [])
      names.push(...hits)
      yield* settleDatabase(world, { ...database, fence: ++fence })
      yield* drive(world, promoted, (seen) => isReady(seen) && seen?.status.state === "promoted")
      yield* drive(world, kept, isReady)
      const after = `after ${hits.join()}`
      const first = (resource: BranchResource) =>
        Effect.map(rows(world, resource), (found) => found.slice(0, 1))
      assert.deepStrictEqual(yield* first({ ...branch, uid: world.source.uid }), [theirs], after)
      assert.deepStrictEqual(yield* first(kept), [ours], after)
      assert.deepStrictEqual(yield* databaseRemains(world, asServer(world, branch)), [], after)
      assert.deepStrictEqual(
        fs.readdirSync(folderOf(world, world.source)).filter((file) => file.startsWith("data.")),
        [],
        after
      )
      if (full && hits.length > 0) {
        yield* drive(world, { ...kept, deleting: true }, () => false)
        continue
      }
      // In the end what was kept expires as well.
      const status = { ...(yield* drive(world, kept, isReady)).status }
      const past = {
        ...kept,
        spec: { ...kept.spec, expiresInDays: 1, expiresFrom: "2026-01-01T00:00:00.000Z" }
      }
      const end = yield* drive(world, { ...past, status }, isReady)
      assert.strictEqual(end.status?.state, "expired")
      assert.deepStrictEqual(yield* databaseRemains(world, asServer(world, kept)), [])
      break
    }
    assert.includeMembers(names, acts)
  })
)

/** Of tests that make branches of one source. The later ones write into it and promote branches to it. */
class World extends Context.Service<World, BranchWorld>()("test/branches/World") {}

layer(Layer.effect(World, branchWorld), { excludeTestServices: true, timeout: "5 minutes" })(
  "a copy",
  (it) => {
    // Each of the steps meets a fault here, and all of them in the campaign.
    it.effect(
      "that fails says at which step, leaves nothing half-made and is tried again",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          yield* failsAt(world, "replay")
          // In vain four times: it is given up, with the reason, until somebody asks again.
          const resource = makeBranch(world)
          let broken = true
          const faults = brokenAt(
            "copy",
            Effect.suspend(() => (broken ? Effect.die(new Error("a fault")) : Effect.void))
          )
          const given = yield* faults(drive(world, resource, isReady))
          assert.match(given.said.at(-1) ?? "", /^Terminal: /)
          assert.lengthOf(given.said, 4)
          assert.deepStrictEqual(halfMade(world, resource), [])
          broken = false
          assert.isTrue((yield* faults(drive(world, resource, isReady))).status?.hydrated)
        }),
      1_200_000
    )

    it.effect(
      "is made anew by the next control plane when one stops",
      () => Effect.flatMap(World, (world) => stopsAt(world, "hand over")),
      1_200_000
    )

    it.effect(
      "ends when the branch is deleted, and leaves nothing",
      () =>
        Effect.flatMap(World, (world) =>
          Effect.forEach(["begin", "replay"], (step) => isDeletedAt(world, step), {
            concurrency: 2
          })
        ),
      1_200_000
    )

    it.effect(
      "of production data comes into a preview only where the project allows it; expired, it has no server any more",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          const resource = { ...makeBranch(world), environment: "preview" }
          const refused = yield* drive(world, resource, isReady)
          assert.match(refused.said.join("\n"), /^Terminal: The project does not allow/)
          const origin = world.origins.get(world.source.uid)
          if (origin !== undefined) world.origins.set(origin.uid, { ...origin, previewData: true })
          assert.isTrue((yield* drive(world, resource, isReady)).status?.hydrated)

          const expired = {
            ...resource,
            spec: { ...resource.spec, expiresInDays: 1, expiresFrom: "2026-01-01T00:00:00.000Z" }
          }
          const { status } = yield* drive(world, expired, isReady)
          assert.strictEqual(status?.state, "expired", "and the record says so")
          assert.deepStrictEqual(yield* databaseRemains(world, asServer(world, resource)), [])
        }),
      600_000
    )

    it.effect(
      "the source that is killed during the copy, and the recovery that is killed, cost a try and nothing more",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          const resource = makeBranch(world)
          let fell = false
          const { said } = yield* drive(
            world,
            resource,
            isReady,
            Effect.suspend(() =>
              fell ? Effect.asVoid(settleDatabase(world, { ...world.source, fence: ++fence })) : Effect.void
            )
          ).pipe(
            Effect.provideService(HydrationHook, (name) =>
              name === "copy" && !fell
                ? Effect.sync(() => {
                    killNamingWithChildren(world.source.uid)
                    fell = true
                  })
                : Effect.void
            )
          )
          assert.match(said.join("\n"), /at the step "copy"/)
          assert.deepStrictEqual(yield* rows(world, resource), numbers(1_000))

          const other = makeBranch(world)
          let killed = false
          // As soon as it is there: it cannot be over before its own process has asked it, which is this one as well.
          const killer = Effect.sync(() => {
            // Helpers of the copy name this folder as well.
            const marker = `-D ${path.join(folderOf(world, { uid: other.uid }), "hydrating-")}`
            // By one look: a process that is about to become the server has no command line for a moment.
            killed = killNaming(marker) > 0
          }).pipe(
            Effect.repeat({ until: () => killed, schedule: Schedule.spaced("1 millis") }),
            Effect.timeoutOption("5 minutes")
          )
          let begun = false
          const again = yield* drive(world, other, isReady).pipe(
            Effect.provideService(HydrationHook, (name) =>
              Effect.suspend(() => {
                if (name !== "replay" || begun) return Effect.void
                begun = true
                return Effect.asVoid(Effect.forkDetach(killer))
              })
            )
          )
          assert.deepStrictEqual(yield* rows(world, other), numbers(1_000))
          assert.isTrue(killed)
          assert.match(again.said.join("\n"), /at the step "replay"/)
        }),
      1_200_000
    )

    it.effect(
      "a copy of a database that is not up waits for it, and takes one try",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          const stop = Effect.gen(function* () {
            const servers = yield* PostgresServers
            const run = { uid: world.source.uid, fence: ++fence }
            yield* servers.claim(run)
            yield* servers.stop(run)
          }).pipe(Effect.provide(databaseServices(world), { local: true }), Effect.orDie)
          yield* stop
          const resource = makeBranch(world)
          let looks = 0
          const { said } = yield* drive(
            world,
            resource,
            isReady,
            Effect.suspend(() =>
              // It looks again as often as it likes before the database is up.
              ++looks === 6 ? settleDatabase(world, { ...world.source, fence: ++fence }) : Effect.void
            )
          )
          assert.isAtLeast(said.length, 3)
          assert.deepStrictEqual(
            [...new Set(said)],
            ["Waiting: The database that it is a copy of is not up; the copy begins as soon as it is"]
          )
          const control = JSON.parse(
            fs.readFileSync(path.join(folderOf(world, { uid: resource.uid }), "hydration.json"), "utf8")
          )
          assert.strictEqual(control.attempt, 1)
          assert.deepStrictEqual(yield* rows(world, resource), numbers(1_000))
        }),
      600_000
    )

    it.effect(
      "a branch that loses its data is over, with the reason; promoting it then changes nothing of the database",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          // The data alone, and everything that was known of the server.
          for (const lost of ["data", ""]) {
            const branch = makeBranch(world)
            const { status } = yield* drive(world, branch, isReady)
            const kept = makeBranch(world, { source: { kind: "replaced" } })
            const database = {
              ...world.source,
              fence: ++fence,
              spec: { ...world.source.spec, lineage: branch.uid, keptAs: kept.uid }
            }
            yield* Effect.gen(function* () {
              yield* (yield* PostgresServers).stop({ uid: branch.uid, fence })
            }).pipe(Effect.ignore, Effect.provide(databaseServices(world), { local: true }), Effect.orDie)
            killNaming(folderOf(world, branch))
            fs.rmSync(path.join(folderOf(world, branch), lost), { recursive: true })
            const failure = yield* Effect.gen(function* () {
              const { reconciler } = (yield* Registry).registrations.get("Database")!
              return yield* Effect.flip(reconciler.converge(database, yield* look(reconciler, database)))
            }).pipe(Effect.provide(databaseReconciler(world), { local: true }))
            assert.match(failure.message, /^The data of the promoted branch is gone/)
            const promoted = {
              ...branch,
              spec: { ...branch.spec, promotedTo: world.source.uid },
              status
            } as BranchResource
            const told = yield* drive(world, promoted, (seen) => seen?.status.failure?.code === "data_lost")
            // What the chore does next: the promotion is called off.
            const after = yield* drive(world, { ...branch, status: told.status } as BranchResource, isReady)
            assert.match(after.said.join("\n"), /^Terminal: The data folder of the branch is gone/)
            const given = yield* drive(world, kept, isReady)
            assert.match(given.said.join("\n"), /^Terminal: There is nothing to keep/)
            yield* settleDatabase(world, { ...world.source, fence: ++fence })
            assert.deepStrictEqual(yield* rows(world, { ...branch, uid: world.source.uid }), numbers(1_000))
          }
          // Each of those that were to keep something knows it, not only the last one.
          const assigned = JSON.parse(
            fs.readFileSync(path.join(folderOf(world, world.source), "server.json"), "utf8")
          )
          assert.lengthOf(assigned.nothingKept, 2)
        }),
      600_000
    )

    it.effect(
      "a writer goes on while the copy is made: the branch holds a prefix of what it wrote",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          const resource = makeBranch(world)
          let [written, writing] = [1_000, true]
          const writer = asApplication(world, world.source, async (sql) => {
            while (writing) {
              await sql`insert into ledger values (${written + 1})`
              written++
            }
          })
          const someMore = Effect.suspend(() => {
            const enough = written + 2
            return eventually(
              "some more is written",
              Effect.sync(() => written >= enough)
            )
          })
          let before = 0
          yield* Effect.all(
            [
              writer,
              Effect.ensuring(
                Effect.gen(function* () {
                  yield* someMore
                  before = written
                  yield* settleBranch(world, resource)
                  yield* someMore
                }),
                Effect.sync(() => {
                  writing = false
                })
              )
            ],
            { concurrency: 2 }
          )
          const found = yield* rows(world, resource)
          assert.deepStrictEqual(found, numbers(found.length))
          assert.isAtLeast(found.length, before)
          assert.isBelow(found.length, written)
          yield* leftoversGo(world, resource)
        }),
      600_000
    )

    it.effect(
      "servers that are killed before and after each act of a promotion lose nothing",
      () =>
        Effect.gen(function* () {
          const world = yield* World
          const branch = makeBranch(world)
          yield* settleBranch(world, { ...branch, fence: ++fence })
          const before = yield* rows(world, branch)
          yield* asApplication(world, asServer(world, branch), (sql) => sql`insert into ledger values (-1)`)
          yield* asApplication(world, world.source, (sql) => sql`insert into ledger values (-2)`)
          const kept = makeBranch(world, { source: { kind: "replaced" } })
          const promoted = { ...branch, spec: { ...branch.spec, promotedTo: world.source.uid } }
          const database = {
            ...world.source,
            fence: ++fence,
            spec: { ...world.source.spec, lineage: branch.uid, keptAs: kept.uid }
          }
          const killed = new Map<string, number>()
          const once = (moment: string) => (name: string, effect: "read" | "write") =>
            Effect.sync(() => {
              const key = `${moment} ${name}`
              if (effect !== "write" || killed.has(key)) return
              const found = [branch, world.source].flatMap(({ uid }) =>
                processesNaming(folderOf(world, { uid }))
              )
              killed.set(key, found.length)
              for (const { pid } of found) signal(pid, "SIGKILL")
            })
          yield* settleDatabase(world, database).pipe(
            Effect.provideService(ExternalCallHook, { before: once("before"), after: once("after") })
          )
          assert.isAbove(
            [...killed.values()].reduce((sum, one) => sum + one, 0),
            2,
            "some of them ran"
          )
          assert.isTrue(killed.has("before postgres.takeIn") && killed.has("after postgres.start"))
          yield* drive(world, promoted, (seen) => isReady(seen) && seen?.status.state === "promoted")
          yield* drive(world, kept, isReady)
          assert.deepStrictEqual(yield* rows(world, { ...branch, uid: world.source.uid }), [-1, ...before])
          assert.deepStrictEqual(yield* rows(world, kept), [-2, ...before])
        }),
      900_000
    )

    campaign(
      it.effect,
      "promotion-lost-data",
      "a database whose data is lost before the branch that is promoted takes its place gets the branch's data",
      { roundMs: 900_000, rounds: 0 },
      () =>
        Effect.gen(function* () {
          // The data alone, with its server still running; and everything that was known of the server.
          const world = yield* World
          for (const [lost, own] of [
            ["data", -10],
            ["", -11]
          ] as const) {
            const branch = makeBranch(world)
            yield* settleBranch(world, { ...branch, fence: ++fence })
            const before = yield* rows(world, branch)
            yield* asApplication(
              world,
              asServer(world, branch),
              (sql) => sql`insert into ledger values (${own})`
            )
            const kept = makeBranch(world, { source: { kind: "replaced" } })
            const promoted = { ...branch, spec: { ...branch.spec, promotedTo: world.source.uid } }
            const database = {
              ...world.source,
              spec: { ...world.source.spec, lineage: branch.uid, keptAs: kept.uid }
            }
            fs.rmSync(path.join(folderOf(world, world.source), lost), { recursive: true })
            yield* settleDatabase(world, { ...database, fence: ++fence })
            const found = yield* rows(world, { ...branch, uid: world.source.uid })
            assert.deepStrictEqual(found, [own, ...before], lost)
            yield* drive(world, promoted, (seen) => isReady(seen) && seen?.status.state === "promoted")
            const given = yield* drive(world, kept, isReady)
            assert.match(given.said.at(-1) ?? "", /^Terminal: There is nothing to keep/)
            yield* drive(world, { ...kept, deleting: true }, () => false)
            assert.deepStrictEqual(yield* databaseRemains(world, asServer(world, kept)), [])
          }
        })
    )
  }
)
