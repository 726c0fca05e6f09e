/** Drift of limits, on machines that have control groups for servers. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { placeGroups } from "#src/infra/host/control-group-place.ts"
import { placeName } from "#src/infra/host/server-holding.ts"

const placed = await placeGroups("svc-test", undefined, "look")
if (!placed.usable) process.stderr.write(`limits are not tested: ${placed.why}\n`)

/** Changes behind the platform's back; `pidOf` answers the first process of a server. */
export const limitDrifts = <World extends { readonly dataDir: string }>(
  pidOf: (world: World, uid: string) => number
) => {
  if (!placed.usable) return []
  const { folders, version } = placed.place
  const folderOf = ({ dataDir }: World, controller: "memory" | "pids") =>
    path.join(path.dirname(folders.get(controller) ?? ""), placeName(dataDir))
  const drift = (name: string, disturb: (world: World, uid: string) => void) => ({
    name,
    field: "/limits",
    disturb: (world: World, { uid }: { readonly uid: string }) => Effect.sync(() => disturb(world, uid))
  })
  return [
    drift("processes without limit", (world, uid) =>
      fs.writeFileSync(path.join(folderOf(world, "pids"), uid, "pids.max"), "max")
    ),
    ...(version === 1
      ? [
          drift("the server is outside of its control group", (world, uid) =>
            fs.writeFileSync(
              path.join(folderOf(world, "memory"), "..", "cgroup.procs"),
              String(pidOf(world, uid))
            )
          )
        ]
      : [])
  ]
}
