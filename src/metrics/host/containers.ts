/** What the containers of executions use: by the control groups and the network that their engine gave them. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import type { RunningContainer } from "#src/infra/containers/types.ts"
import { type GroupSystem, groupsOfProcess } from "#src/infra/host/control-group-place.ts"
import { type Group, groupUsage } from "./group-usage.ts"
import { kernelText } from "./kernel-text.ts"
import { type Process, processOf } from "./process-usage.ts"
import { known, type Usage } from "./usage.ts"

export interface ContainerHere {
  readonly orgId: string
  readonly uid: string
  readonly id: string
  readonly process: Process
  readonly usage: Usage
}

export const makeContainersHere = (system: GroupSystem) =>
  Effect.gen(function* () {
    const engine = yield* ContainerEngine
    const { label } = yield* Installation
    let groups: ReadonlyMap<string, Group> = new Map()

    /** Its own groups only: of a controller that the engine gives it no group of, it is in somebody else's. */
    const groupOf = ({ id, pid }: RunningContainer) =>
      Effect.promise(async (): Promise<Group> => {
        const { version, folders } = await groupsOfProcess(pid, system).catch(() => ({
          version: 2 as const,
          folders: new Map<string, string>()
        }))
        return { version, folders: new Map([...folders].filter(([, folder]) => folder.includes(id))) }
      })

    const look = Effect.fnUntraced(function* (container: RunningContainer) {
      const { id, labels, pid } = container
      const { "svc.organization": orgId, "svc.execution": uid } = labels
      const process = processOf(system.procDir, pid)
      if (orgId === undefined || uid === undefined || process === undefined) return undefined
      const group = groups.get(id) ?? (yield* groupOf(container))
      const usage = {
        ...(group.folders.size === 0 ? {} : groupUsage(group)),
        ...networkUsage(kernelText(path.join(system.procDir, String(pid), "net/dev")) ?? "")
      }
      const here: ContainerHere = { orgId, uid, id, process, usage }
      return { here, group }
    })

    /** None where no engine answers. */
    return Effect.gen(function* () {
      const running = yield* Effect.orElseSucceed(engine.running(label), () => [])
      const found = (yield* Effect.forEach(running, look)).filter((one) => one !== undefined)
      groups = new Map(
        found.flatMap(({ here, group }) => (group.folders.size === 0 ? [] : [[here.id, group] as const]))
      )
      return found.map(({ here }) => here)
    })
  })

/** All interfaces of a container's own network but the one to itself (proc_pid_net(5)). */
export const networkUsage = (text: string): Pick<Usage, "receivedBytes" | "transmittedBytes"> => {
  let found: readonly [number, number] | undefined
  for (const line of text.split("\n")) {
    const [, name, counts] = /^\s*([^:\s]+):\s*(.*)$/.exec(line) ?? []
    if (name === undefined || name === "lo" || counts === undefined) continue
    const numbers = counts.split(/\s+/).map(Number)
    found = [(found?.[0] ?? 0) + (numbers[0] ?? 0), (found?.[1] ?? 0) + (numbers[8] ?? 0)]
  }
  return known({ receivedBytes: found?.[0], transmittedBytes: found?.[1] })
}
