/** All that is known of an app at a moment, and the steps that may be due. */
import type { AppSpec } from "#schemas/app.ts"
import type { AppState, Instance, SiteState } from "#src/apps/app-state.ts"
import type { AppOptions } from "#src/apps/options.ts"
import type { Target } from "#src/edge/target.ts"
import type { Container } from "#src/infra/containers/ContainerEngine.ts"

/** A deployment with everything that its instances are started with. */
export interface Revision {
  readonly revision: string
  readonly deployment: string
}

export interface SeenInstance {
  readonly instance: Instance
  /** Undefined: there is no such container. */
  readonly container: Container | undefined
  /** Undefined: nobody asked. Null: it answered well; otherwise why not. */
  readonly health: string | null | undefined
  /** When it was asked. */
  readonly askedAt: number
  /** Somebody keeps what it prints. */
  readonly followed: boolean
  /** Connections of this machine to it. */
  readonly connections: number
}

export interface Situation {
  readonly now: number
  readonly spec: AppSpec
  readonly state: AppState | undefined
  /** What the specification asks for; undefined: nothing was deployed. */
  readonly target: Revision | undefined
  readonly seen: ReadonlyArray<SeenInstance>
  /** Undefined: the environment has no address yet. */
  readonly site: SiteState | undefined
  readonly options: AppOptions
}

export interface Ended {
  readonly at: Date
  readonly exitCode: number | null
  readonly reason: string
}

export type Step =
  | { readonly do: "startEngine" }
  | { readonly do: "begin" | "fallAsleep" | "wake" | "steady" | "active" | "paused" | "stopped" }
  | { readonly do: "add"; readonly of: Revision }
  | { readonly do: "make" | "start" | "follow" | "healthy" | "kill" | "remove"; readonly instance: Instance }
  | { readonly do: "started"; readonly instance: Instance; readonly address: string; readonly at: Date }
  | { readonly do: "ended"; readonly instance: Instance; readonly how: Ended; readonly crash: boolean }
  | {
      readonly do: "checked"
      readonly instance: Instance
      readonly at: Date
      readonly unanswered: number
      readonly crash: boolean
    }
  | { readonly do: "scale"; readonly to: number | null }
  | {
      readonly do: "stop"
      readonly instances: ReadonlyArray<Instance>
      readonly why: string
      readonly crash: boolean
    }
  | { readonly do: "pause"; readonly instances: ReadonlyArray<Instance> }
  | {
      readonly do: "unpause"
      readonly instances: ReadonlyArray<Instance>
      /** Nothing else keeps requests from it. */
      readonly wake: boolean
    }
  | { readonly do: "reject"; readonly what: Revision; readonly error: string }
  | {
      readonly do: "serve"
      readonly what: Revision
      readonly target: Target | null
      /** Those that stay. */
      readonly instances: ReadonlyArray<Instance>
      /** Whether the edge is to be told: an origin of the environment's own takes the requests otherwise. */
      readonly route: boolean
    }
  /** Nothing to do but to look again. */
  | { readonly do: "wait"; readonly reason: string; readonly message: string; readonly forMs: number }
  | { readonly do: "rest"; readonly forMs: number }
