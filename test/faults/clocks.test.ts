/** Processes whose clocks are wrong, or jump: leases and due times are Postgres' affair, so nothing comes of it. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { until } from "#test/setup/wait.ts"
import { checkHistory } from "./engine/history.ts"
import { engineWorld } from "./engine/world.ts"

const hour = 3_600_000
const clock = (offset: number, jump = 0) =>
  new URL(`./engine/clock.ts?offset=${offset}&jump=${jump}`, import.meta.url).href

campaign(
  it.live,
  "clocks",
  "processes whose clocks are an hour off, or jump, neither take what others hold nor fall behind",
  { roundMs: 600_000, rounds: 0 },
  Effect.fnUntraced(function* ({ seed }) {
    const random = new Seeded(seed)
    const count = 200
    const world = yield* engineWorld({ driftMs: 1_000, leaseMs: 10_000 })
    yield* Effect.promise(async () => {
      world.start("ahead", clock(hour))
      world.start("behind", clock(-hour))
      const jumping = world.start("jumping", clock(0, hour))
      const counts = () => {
        const perProcess = Map.groupBy(world.place.lines(), (line) => line.process)
        return world.processes.map(({ name }) => perProcess.get(name)?.length ?? 0)
      }
      const goOn = async () => {
        const before = counts()
        await until("every process takes part", () => counts().every((n, i) => n > before[i]! + 100))
      }
      // Every twentieth write takes longer than a lease lasts without a heartbeat.
      const uids = await world.create(
        Array.from({ length: count }, (_, i) => ({
          size: random.int(0, 99),
          // So that every process is always in the middle of something.
          lookMs: i % 10 === 0 ? 700 : random.int(0, 4),
          writeMs: i % 20 === 0 ? 11_000 : random.int(0, 19)
        }))
      )
      await goOn()
      const jumps = [hour, -hour, 0]
      for (const [round] of jumps.entries()) {
        jumping.signal("SIGUSR2")
        await goOn()
        const changed = uids.slice((round * count) / 4, ((round + 1) * count) / 4)
        for (const uid of changed) await world.update(uid, { size: 200 + round, lookMs: 0, writeMs: 0 })
        await world.settled()
        for (const uid of changed) assert.strictEqual(world.place.size(uid), 200 + round)
      }
      for (const process of world.processes) {
        assert.isTrue(process.alive(), process.log())
        assert.notInclude(process.log(), "does not end", "no run was given up for its clock")
      }
      await Promise.all(world.processes.map((process) => process.kill()))

      const lines = world.place.lines()
      for (const history of Map.groupBy(lines, (line) => line.uid).values()) checkHistory(history)
      // The clocks were as wrong as this test says.
      const off = (name: string) =>
        new Set(
          lines
            .filter((line) => line.process === name)
            .map((line) => Math.round((line.at - Date.now()) / hour) * hour)
        )
      assert.deepStrictEqual(off("ahead"), new Set([hour]))
      assert.deepStrictEqual(off("behind"), new Set([-hour]))
      assert.sameMembers([...off("jumping")], jumps)
    })
  })
)
