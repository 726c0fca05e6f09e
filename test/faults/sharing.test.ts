/** Several engine processes over one store: each resource is worked on by one of them at a time, whatever happens. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { checkHistory } from "./engine/history.ts"
import { engineWorld } from "./engine/world.ts"
import { sleep, until } from "./wait.ts"

const random = (below: number) => Math.floor(Math.random() * below)

const share = (names: ReadonlyArray<string>, disturb: (world: World) => Promise<ReadonlySet<string>>) =>
  Effect.gen(function* () {
    // Looked at so often that the processes get in each other's way all the time.
    const world = yield* engineWorld({ driftMs: 1_000, leaseMs: 10_000 })
    yield* Effect.promise(async () => {
      for (const name of names) world.start(name)
      const spec = () => ({ size: random(1_000), lookMs: random(4), writeMs: random(12) })
      const uids: Array<string> = []
      for (let batch = 0; batch < 5; batch++)
        uids.push(...(await world.create(Array.from({ length: 100 }, spec))))
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
      const killed = await disturb(world)
      changing = false
      await Promise.all(people)
      await world.settled()
      assert.isAbove(asked.size, 50)
      const stored = new Map((await world.things()).map((one) => [one.uid, one]))
      assert.strictEqual(stored.size, 500)
      const sizes = world.place.sizes()
      for (const [uid, size] of asked) assert.strictEqual(sizes.get(uid), size, "no change is lost")

      for (const process of world.processes)
        assert.strictEqual(process.alive(), !killed.has(process.name), process.log())
      await Promise.all(world.processes.map((process) => process.kill()))
      const lines = world.place.lines()
      const perProcess = Map.groupBy(lines, (line) => line.process)
      for (const { name } of world.processes)
        assert.isAbove(perProcess.get(name)?.length ?? 0, 200, `${name} takes part`)
      const perThing = Map.groupBy(lines, (line) => line.uid)
      assert.strictEqual(perThing.size, 500)
      let handedOver = 0
      for (const history of perThing.values()) {
        checkHistory(history, killed)
        if (new Set(history.map((line) => line.process)).size > 1) handedOver++
      }
      assert.isAbove(handedOver, 100, "things go from one process to another")
    })
  }).pipe(Effect.scoped)

type World = Effect.Success<ReturnType<typeof engineWorld>>
/** Until every process has looked at things many times. */
const busy = (world: World, lines: number) =>
  until("they are busy", () => {
    const perProcess = Map.groupBy(world.place.lines(), (line) => line.process)
    return world.processes
      .filter((process) => process.alive())
      .every(({ name }) => (perProcess.get(name)?.length ?? 0) > lines)
  })

it.live(
  "two processes share 500 resources, and each is worked on by one of them at a time",
  () =>
    share(["one", "two"], async (world) => {
      await busy(world, 3_000)
      return new Set()
    }),
  600_000
)

it.live(
  "three processes share 500 resources while one of them is killed and another one comes",
  () =>
    share(["one", "two", "three"], async (world) => {
      await busy(world, 1_000)
      await world.processes[1]!.kill()
      world.start("four")
      await busy(world, 2_000)
      return new Set(["two"])
    }),
  600_000
)
