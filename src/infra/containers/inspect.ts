/** What the engine says of a container, and what it misses. */
import type Docker from "dockerode"
import { endedForMemory } from "./memory.ts"
import type { Container } from "./types.ts"

/** Docker's words for the state of a container, and Podman's. */
export const stateOf = (status: string): Container["state"] =>
  /^(created|configured|initialized)$/.test(status)
    ? "created"
    : /^(running|paused|stopping|restarting)$/.test(status)
      ? "running"
      : "exited"

export const toContainer = ({ Id, State, NetworkSettings }: Docker.ContainerInspectInfo): Container => {
  const at = (text: string) => (/^[1-9]/.test(text) && Date.parse(text) > 0 ? new Date(text) : undefined)
  const state = State.Running ? "running" : stateOf(State.Status)
  const addresses = Object.values(NetworkSettings.Networks).map(({ IPAddress }) => IPAddress)
  return {
    id: Id,
    state,
    paused: State.Paused,
    address: state === "running" ? addresses.find((address) => address !== "") : undefined,
    startedAt: at(State.StartedAt),
    finishedAt: at(State.FinishedAt),
    exitCode: State.ExitCode,
    outOfMemory: State.OOMKilled
  }
}

/** Podman on version 1 of control groups misses that a container ran out of memory when it ends at that moment. */
export const withKernel = (container: Container): Container =>
  container.state === "exited" && container.exitCode === 137 && !container.outOfMemory
    ? { ...container, outOfMemory: endedForMemory(container.id) }
    : container
