/** Measures what runs on this machine, every few seconds, in one of the processes that share its data folder. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { answered } from "#src/engine/answered.ts"
import { Host } from "#src/infra/host/Host.ts"
import { periodic } from "#src/loops/periodic.ts"
import { MetricSamples } from "../MetricSamples.ts"
import { settings } from "../settings.ts"
import { makeLook } from "./look.ts"
import { makeOneSampler } from "./one-sampler.ts"

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { lookSeconds } = yield* settings
    const host = yield* Host
    const samples = yield* MetricSamples
    const folder = path.join(host.dataDir, "metrics")
    yield* host.directory(folder)
    const look = yield* makeLook(folder)
    const sampler = makeOneSampler(host, folder)
    yield* Effect.addFinalizer(() => sampler.leave)
    let mine = false

    yield* Effect.gen(function* () {
      const before = mine
      mine = yield* sampler.isMine
      if (!mine) return
      if (!before) yield* look.forget
      const seen = yield* look.take
      yield* answered("record measurements")(samples.record(seen))
    }).pipe(
      // What a look has missed, the next one tells.
      Effect.catchCause((cause) => Effect.logWarning("could not measure what runs on this machine", cause)),
      // In windows: a look that takes longer leaves out those that it has missed.
      Effect.repeat(Schedule.windowed(`${lookSeconds} seconds`)),
      Effect.forkScoped
    )
    yield* periodic(
      { does: "see how much of the disk servers use", every: "15 seconds" },
      Effect.suspend(() => (mine ? look.walk : Effect.void))
    )
  })
)
