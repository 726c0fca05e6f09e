/**
 * A process that the operating system stops for longer than its leases last (SIGSTOP stands for a long pause of any
 * kind) must change nothing when it goes on: somebody else has taken over.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { until } from "#test/setup/wait.ts"
import type { Line } from "./engine/place.ts"
import type { ThingSpec } from "./engine/settings.ts"
import { type EngineProcess, engineWorld } from "./engine/world.ts"

type World = Effect.Success<ReturnType<typeof engineWorld>>

/**
 * Makes things until a process is stopped in the middle of the first call of that kind: a call that was over before
 * the signal came is no loss.
 */
const stopDuring = (world: World, spec: ThingSpec, call: Line["call"]) =>
  until(`a process is stopped in ${call}`, async () => {
    const [uid = ""] = await world.create([spec])
    const line = await until(`a process is in ${call}`, () =>
      world.place.lines(uid).find((one) => one.call === call && one.what === "begins")
    )
    const stalled = world.processes.find(({ name }) => name === line.process)!
    stalled.signal("SIGSTOP")
    await until("it is stopped", stalled.stopped)
    const last = world.place.lines(uid).at(-1)
    if (last?.call === call && last.what === "begins") return { uid, stalled, fence: line.fence }
    stalled.signal("SIGCONT")
    return undefined
  })

/** New things come until the process has made one of them: it has gone on, and is well. */
const wellAgain = async (world: World, process: EngineProcess) => {
  const seen = world.place.lines().length
  await until("it takes part again", async () => {
    await world.create(Array.from({ length: 10 }, () => ({ size: 1, lookMs: 0, writeMs: 20 })))
    await world.settled()
    return world.place
      .lines()
      .slice(seen)
      .some((line) => line.process === process.name && line.what === "writes")
  })
  assert.isTrue(process.alive(), process.log())
}

it.live(
  "a process that is stopped in the middle of a write is too late with it, and writes nothing after it",
  () =>
    Effect.gen(function* () {
      const world = yield* engineWorld()
      yield* Effect.promise(async () => {
        for (const name of ["one", "two"]) world.start(name)
        const spec = { size: 1, lookMs: 0, writeMs: 1_000 }
        const { uid, stalled, fence } = await stopDuring(world, spec, "converge")
        await until("another took over", async () => (await world.thing(uid))?.phase === "ready")
        await world.update(uid, { ...spec, size: 2, writeMs: 0 })
        await world.settled()
        const before = await world.thing(uid)

        stalled.signal("SIGCONT")
        await until("it is refused", () =>
          world.place.lines(uid).some((line) => line.fence === fence && line.what === "is refused")
        )
        await wellAgain(world, stalled)
        const of = world.place.lines(uid).filter((line) => line.fence === fence)
        assert.deepStrictEqual(
          of.map(({ call, what }) => `${call} ${what}`),
          ["observe begins", "observe ends", "converge begins", "converge is refused", "converge ends"]
        )
        assert.deepStrictEqual(await world.thing(uid), before, "it recorded nothing")
        assert.strictEqual(world.place.size(uid), 2)
      })
    }).pipe(Effect.scoped),
  600_000
)

it.live(
  "a process that is stopped before its first write does not make a thing that was deleted meanwhile",
  () =>
    Effect.gen(function* () {
      // A far end that takes writes from anybody: only the process itself can hold back.
      const world = yield* engineWorld({ fenced: false })
      yield* Effect.promise(async () => {
        for (const name of ["one", "two"]) world.start(name)
        const { uid, stalled, fence } = await stopDuring(
          world,
          { size: 1, lookMs: 700, writeMs: 0 },
          "observe"
        )
        await world.delete(uid)
        await until("it is gone", async () => (await world.thing(uid)) === undefined)

        stalled.signal("SIGCONT")
        await until("its look ends", () =>
          world.place.lines(uid).some((line) => line.fence === fence && line.what === "ends")
        )
        await wellAgain(world, stalled)
        const of = world.place.lines(uid).filter((line) => line.fence === fence)
        assert.deepStrictEqual(
          of.map(({ call, what }) => `${call} ${what}`),
          ["observe begins", "observe ends"]
        )
        assert.isUndefined(world.place.size(uid), "nothing is left behind")
      })
    }).pipe(Effect.scoped),
  600_000
)
