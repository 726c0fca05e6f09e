/**
 * Memory that starting took, given back. V8 keeps the room that the garbage of a start has filled, a sixth of the process,
 * until it collects everything, which a control plane that has little to do never makes it do.
 */
import { performance } from "node:perf_hooks"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import * as Effect from "effect/Effect"

/** Nobody waits for the process then: collecting holds it up, once, for a tenth of a second or so. */
const idleShare = 0.1

const collect = Effect.sync(() => {
  setFlagsFromString("--expose-gc")
  const gc: unknown = runInNewContext("gc")
  setFlagsFromString("--no-expose-gc")
  if (typeof gc === "function") gc()
})

/** Once, in the first second after the start in which the process has little to do. */
export const releaseMemory = Effect.gen(function* () {
  yield* Effect.sleep("5 seconds")
  let before = performance.eventLoopUtilization()
  const busyShare = Effect.sync(() => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization
  })
  yield* Effect.repeat(Effect.delay(busyShare, "1 second"), { until: (share) => share < idleShare })
  yield* collect
})
