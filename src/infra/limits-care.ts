/** Says at the start whether servers are held to limits, and removes the control groups of servers that are gone. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { persistent } from "#src/engine/persistent.ts"
import { Host } from "./Host.ts"

const everyTidying = "10 minutes"

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { dataDir, holding } = yield* Host
    const placed = yield* holding.placed
    yield* placed.usable
      ? Effect.logInfo("managed servers run within limits of their size", {
          cgroups: `v${placed.place.version}`,
          controllers: [...placed.place.folders.keys()].join(", ")
        })
      : Effect.logWarning(
          "managed servers run without limits: each may take all memory of this machine (svc doctor)",
          { because: placed.why, todo: placed.hint }
        )
    // A server's folder is there before its group, and goes after it.
    const isThere = (name: string) =>
      ["databases", "caches"].some((kind) => fs.existsSync(path.join(dataDir, kind, name)))
    yield* holding
      .tidy(isThere)
      .pipe(
        Effect.repeat(Schedule.spaced(everyTidying)),
        (loop) => persistent("remove control groups of servers that are gone", loop),
        Effect.forkScoped
      )
  })
)
