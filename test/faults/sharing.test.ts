/** Several engine processes over one store: each resource is worked on by one of them at a time, whatever happens. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign, type Round } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { checkHistory } from "./engine/history.ts"
import { engineWorld } from "./engine/world.ts"

const share = (
  { seed }: Round,
  names: ReadonlyArray<string>,
  disturb: (world: World, lines: number) => Promise<ReadonlySet<string>>
) =>
  Effect.gen(function* () {
    const drawn = new Seeded(seed)
    const random = (below: number) => drawn.int(0, below - 1)
    const count = 500
    // Looked at so often that the processes get in each other's way all the time.
    const world = yield* engineWorld({ driftMs: 1_000, leaseMs: 10_000 })
    yield* Effect.promise(async () => {
      for (const name of names) world.start(name)
      const spec = () => ({ size: random(1_000), lookMs: random(4), writeMs: random(12) })
      const uids: Array<string> = []
      while (uids.length < count) uids.push(...(await world.create(Array.from({ length: count / 4 }, spec))))
      const asked = new Map<string, number>()
      let changing = true
      // Each has things of their own, so that there is no doubt about who came last.
      const people = Array.from({ length: 4 }, async (_, person) => {
        while (changing) {
          const uid = uids[random(uids.length / 4) * 4 + person]!
          const wanted = spec()
          asked.set(uid, wanted.size)
          await world.update(uid, wanted)
          await sleep(random(10))
        }
      })
      const killed = await disturb(world, 5 * count)
      changing = false
      await Promise.all(people)
      await world.settled()
      assert.isAbove(asked.size, 20)
      const stored = new Map((await world.things()).map((one) => [one.uid, one]))
      assert.strictEqual(stored.size, count)
      const sizes = world.place.sizes()
      for (const [uid, size] of asked) assert.strictEqual(sizes.get(uid), size, "no change is lost")

      for (const process of world.processes)
        assert.strictEqual(process.alive(), !killed.has(process.name), process.log())
      await Promise.all(world.processes.map((process) => process.kill()))
      const lines = world.place.lines()
      const perProcess = Map.groupBy(lines, (line) => line.process)
      for (const { name } of world.processes)
        assert.isAbove(perProcess.get(name)?.length ?? 0, count / 2, `${name} takes part`)
      const perThing = Map.groupBy(lines, (line) => line.uid)
      assert.strictEqual(perThing.size, count)
      let handedOver = 0
      for (const history of perThing.values()) {
        checkHistory(history, killed)
        if (new Set(history.map((line) => line.process)).size > 1) handedOver++
      }
      assert.isAbove(handedOver, count / 5, "things go from one process to another")
    })
  })

type World = Effect.Success<ReturnType<typeof engineWorld>>
/** Until every process has looked at things many times. */
const busy = (world: World, lines: number) =>
  until("they are busy", () => {
    const perProcess = Map.groupBy(world.place.lines(), (line) => line.process)
    return world.processes
      .filter((process) => process.alive())
      .every(({ name }) => (perProcess.get(name)?.length ?? 0) > lines)
  })

campaign(
  it.live,
  "sharing",
  "two processes share resources, and each is worked on by one of them at a time",
  { roundMs: 600_000, rounds: 0 },
  (round) =>
    share(round, ["one", "two"], async (world, lines) => {
      await busy(world, lines)
      return new Set()
    })
)

campaign(
  it.live,
  "sharing-kills",
  "three processes share resources while one of them is killed and another one comes",
  { roundMs: 600_000, rounds: 0 },
  (round) =>
    share(round, ["one", "two", "three"], async (world, lines) => {
      await busy(world, lines / 3)
      await world.processes[1]!.kill()
      world.start("four")
      await busy(world, lines / 2)
      return new Set(["two"])
    })
)
