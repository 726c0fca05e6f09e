/** What a container engine is asked for, and what it tells. */
import type * as Redacted from "effect/Redacted"

export interface Container {
  readonly id: string
  readonly state: "created" | "running" | "exited"
  readonly startedAt: Date | undefined
  readonly finishedAt: Date | undefined
  readonly exitCode: number
  readonly outOfMemory: boolean
}

export interface RunningContainer {
  readonly id: string
  readonly labels: Readonly<Record<string, string>>
  /** Its first process, as this machine numbers it. */
  readonly pid: number
}

export interface ContainerPlan {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  /** Id of an image that was pulled. */
  readonly image: string
  /** Program and arguments: whatever the image would run by itself is not. */
  readonly command: ReadonlyArray<string>
  readonly env: Redacted.Redacted<Readonly<Record<string, string>>>
  readonly cpus: number
  /** Weight against others when the processor is short. */
  readonly cpuShares: number
  readonly memoryMb: number
  /** Another runtime than the engine's. */
  readonly runtime: string | undefined
}

export interface PullRequest {
  readonly reference: string
  readonly credentials:
    | {
        readonly registry: string
        readonly username: string
        readonly password: Redacted.Redacted
      }
    | undefined
}

export interface PulledImage {
  readonly id: string
  readonly digest: string | null
}

export type EngineState =
  | { readonly _tag: "Ready" }
  /** `startable`: it is ours to start. */
  | { readonly _tag: "Down"; readonly startable: boolean; readonly message: string }
  | { readonly _tag: "Missing"; readonly message: string }
