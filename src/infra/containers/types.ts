/** What a container engine is asked for, and what it tells. */
import type * as Redacted from "effect/Redacted"

export interface Container {
  readonly id: string
  /** One that is paused counts as running. */
  readonly state: "created" | "running" | "exited"
  readonly paused: boolean
  readonly startedAt: Date | undefined
  readonly finishedAt: Date | undefined
  readonly exitCode: number
  readonly outOfMemory: boolean
  /** Its IPv4 address, which this machine can call; another one with each start. Undefined: it does not run. */
  readonly address: string | undefined
}

export interface RunningContainer {
  readonly id: string
  readonly labels: Readonly<Record<string, string>>
  /** Its first process, as this machine numbers it. */
  readonly pid: number
}

/** Of those of one installation. */
export interface ListedContainer extends Pick<Container, "state" | "paused"> {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

/** Something of this machine that containers may reach, at the services' address and under the same port. */
export interface ReachableService {
  readonly port: number
  /** The IPv4 address of this machine that it listens on. */
  readonly address: string
}

/**
 * `none`: it reaches nothing. `isolated`: the container reaches what is outside of this machine. `environment`: besides, the services that `run` and
 * `lead` name, under the name that the setting `services` tells; and this machine can call it.
 */
export type ContainerNetwork =
  | { readonly kind: "none" }
  | { readonly kind: "isolated" }
  | { readonly kind: "environment"; readonly orgId: string; readonly environmentUid: string }

export interface ContainerPlan {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  /** Id of an image that was pulled. */
  readonly image: string
  /** Program and arguments in place of what the image would run by itself; undefined: that. */
  readonly command: ReadonlyArray<string> | undefined
  readonly env: Redacted.Redacted<Readonly<Record<string, string>>>
  readonly cpus: number
  /** Weight against other containers when the processor is short. */
  readonly cpuShares: number
  /** It takes what others leave of the processor, also those that are no containers. */
  readonly background?: true
  readonly memoryMb: number
  /** Another runtime than the engine's. */
  readonly runtime: string | undefined
  readonly network: ContainerNetwork
  /** Only `/tmp` can be written, which is memory and has this size. Undefined: the file system can. */
  readonly tmpMb?: number
  /** Files of this machine that it may read, by their places in the container. */
  readonly files?: Readonly<Record<string, string>>
  /** MiB of the largest file that it may write. Undefined: what the file system allows. */
  readonly largestFileMb?: number
  /** User, or user and group, as `1000:1000`. Undefined: those of the image. */
  readonly user?: string
  /** Folder that its command begins in. Undefined: that of the image. */
  readonly workdir?: string
  /**
   * Its users are those of this machine, also where it could have a user namespace: files that are taken out of a container
   * with one have owners that mean nothing elsewhere.
   */
  readonly hostUsers?: true
  /** How early the kernel ends it when the machine is short of memory, from 0 to 1000 (proc(5), oom_score_adj). */
  readonly oomScore?: number
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
