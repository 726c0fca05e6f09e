/** What a plan is made of. */
import type { Role } from "#schemas/kind.ts"
import type { JsonObject } from "#schemas/manifest-mapping.ts"
import type { RegionIds } from "#schemas/placement.ts"
import type { Position } from "#src/api/source-location.ts"
import type { PatchOperation } from "./patch.ts"

/** What a plan needs to know of a stored resource. */
export interface Current {
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  /** Slug of the project it is in; a project's own slug for a project. */
  readonly project: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: unknown
  readonly generation: number
  readonly protected: boolean
  /** Deletion was asked for: it counts as gone, and its name is free. */
  readonly deleting: boolean
}

export type Action = "create" | "update" | "replace" | "delete" | "noop"
export type Risk = "read" | "write" | "destructive" | "dangerous"

/** The code of the reason why something that no manifest names stays as it is. */
export const keptWithoutPrune = "needs_prune"

export interface PlannedChange {
  readonly address: string
  readonly kind: string
  readonly project: string
  readonly environment: string | null
  readonly name: string
  readonly action: Action
  readonly risk: Risk
  readonly patch: ReadonlyArray<PatchOperation>
  readonly reasons: ReadonlyArray<{ readonly code: string; readonly message: string }>
  readonly requires: { readonly role: Role; readonly billing: boolean }
}

/** What carrying a change out takes. Clear secrets are in here: it is kept sealed. */
export interface Step {
  readonly address: string
  readonly action: "create" | "update" | "delete"
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: JsonObject | null
  readonly secrets: Readonly<Record<string, string>>
  /** For updates and deletions: the generation that the plan was made for. */
  readonly generation: number | null
}

/** Why the plan cannot be applied. */
export interface Blocker extends Position {
  readonly pointer: string
  readonly code: string
  readonly message: string
}
export type Warning = Omit<Blocker, "code">

export interface Plan {
  readonly changes: ReadonlyArray<PlannedChange>
  readonly steps: ReadonlyArray<Step>
  readonly blockers: ReadonlyArray<Blocker>
  readonly warnings: ReadonlyArray<Warning>
  /** What the plan saw, by address: applying it later needs the same. */
  readonly base: Readonly<Record<string, string>>
}

export interface PlanOptions {
  readonly prune: boolean
  /** Projects whose mass deletion is meant. */
  readonly confirm: ReadonlyArray<string>
  readonly fingerprint: (value: string) => string
  /** Where new resources may be placed. */
  readonly regions: RegionIds
}
