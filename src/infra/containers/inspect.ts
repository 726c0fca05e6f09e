/** What the engine says of a container, and what it misses. */
import type Docker from "dockerode"
import { endedForMemory } from "./memory.ts"
import type { Container } from "./types.ts"

export const toContainer = ({ Id, State }: Docker.ContainerInspectInfo): Container => {
  const at = (text: string) => (/^[1-9]/.test(text) && Date.parse(text) > 0 ? new Date(text) : undefined)
  const status: string = State.Status
  return {
    id: Id,
    state: /^(created|configured|initialized)$/.test(status)
      ? "created"
      : State.Running || /^(running|paused|stopping|restarting)$/.test(status)
        ? "running"
        : "exited",
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
