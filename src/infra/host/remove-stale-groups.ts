/** Removes the control groups of servers that are gone. That there can be none is said by `svc up` and `svc doctor`. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { supervise } from "#src/engine/supervise.ts"
import { Host } from "./Host.ts"

const everyTidying = "10 minutes"

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { dataDir, holding } = yield* Host
    const placed = yield* holding.placed
    if (placed.usable)
      yield* Effect.logDebug("managed servers run within limits of their size", {
        cgroups: `v${placed.place.version}`,
        controllers: [...placed.place.folders.keys()].join(", ")
      })
    // A server's folder is there before its group, and goes after it.
    const isThere = (name: string) =>
      ["databases", "caches"].some((kind) => fs.existsSync(path.join(dataDir, kind, name)))
    yield* holding
      .tidy(isThere)
      .pipe(
        Effect.repeat(Schedule.spaced(everyTidying)),
        (loop) => supervise("remove control groups of servers that are gone", loop),
        Effect.forkScoped
      )
  })
)
