/** Measures what runs on this machine, every few seconds, in one of the processes that share its data folder. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { Host } from "#src/infra/host/Host.ts"
import { MetricSamples } from "../MetricSamples.ts"
import { settings } from "../settings.ts"
import { makeLook } from "./look.ts"
import { makeOneSampler } from "./one-sampler.ts"

const walkEvery = "15 seconds"

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
      // In windows: a look that takes longer leaves out those that it has missed.
      Effect.repeat(Schedule.windowed(`${lookSeconds} seconds`)),
      (loop) => supervise("measure what runs on this machine", loop),
      Effect.forkScoped
    )
    yield* Effect.suspend(() => (mine ? look.walk : Effect.void)).pipe(
      Effect.timeoutOption("5 minutes"),
      Effect.repeat(Schedule.spaced(walkEvery)),
      (loop) => supervise("see how much of the disk servers use", loop),
      Effect.forkScoped
    )
  })
)
