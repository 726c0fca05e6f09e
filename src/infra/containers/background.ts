/**
 * The control group of containers that work in the background. The weight of a container counts against its neighbours
 * only, and all containers of an engine are in one group, whose weight is as large as that of everything else of this
 * machine. So what may wait goes to a group beside that one, which has a small weight as a whole.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { groupsOfProcess } from "../host/control-group-place.ts"
import type { Call } from "./calls.ts"
import type { EngineInfo } from "./engine-info.ts"

/** Names of systemd's slices tell where they are: a dash would be a slice in another one. */
const groups: Readonly<Record<string, string>> = {
  systemd: "svcbackground.slice",
  cgroupfs: "/svc-background"
}

/** Undefined: only root may make one, and only of an engine whose groups are this machine's. */
export const backgroundGroupOf = ({ rootless, cgroupDriver }: EngineInfo): string | undefined =>
  process.platform === "linux" && process.getuid?.() === 0 && !rootless ? groups[cgroupDriver] : undefined

/** Of 1024 that every other group has; in version 2, of 100. */
const weights = { 1: { file: "cpu.shares", text: "32" }, 2: { file: "cpu.weight", text: "3" } } as const

/** Gives the group of a container that runs in the background its weight. Without it the container runs all the same. */
export const weighBackground = Effect.fnUntraced(function* (call: Call, name: string, info: EngineInfo) {
  const group = backgroundGroupOf(info)
  if (group === undefined) return
  const pid = yield* call("Looking at the container", (docker, abortSignal) =>
    docker
      .getContainer(name)
      .inspect({ abortSignal })
      .then(({ State }) => State.Pid)
  )
  if (pid <= 0) return
  yield* Effect.tryPromise(async () => {
    const { version, folders } = await groupsOfProcess(pid)
    const folder = ancestorNamed(path.basename(group), folders.get(version === 1 ? "cpu" : ""))
    const { file, text } = weights[version]
    if (folder !== undefined) await fs.writeFile(path.join(folder, file), text)
  })
})

const ancestorNamed = (name: string, folder: string | undefined): string | undefined => {
  const parts = folder?.split(path.sep) ?? []
  const at = parts.indexOf(name)
  return at === -1 ? undefined : parts.slice(0, at + 1).join(path.sep)
}
