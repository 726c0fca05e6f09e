/** What is asked of the store, and what became of it. */
import type * as Redacted from "effect/Redacted"
import type { Json } from "#schemas/kind.ts"

export type SecretValues = Readonly<Record<string, Redacted.Redacted>>

export interface CreateChange {
  readonly action: "create"
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly managedBy: "api" | "manifest"
  readonly secrets?: SecretValues
}

export interface UpdateChange {
  readonly action: "update"
  readonly uid: string
  /** Gives it another name. */
  readonly name?: string
  readonly spec: Json
  /** Changes it only while it still has this revision. */
  readonly expectedRevision?: string
  /** Changes it only while it still has this generation. */
  readonly expectedGeneration?: number
  readonly managedBy?: "api" | "manifest"
  readonly secrets?: SecretValues
}

/** Asks for deletion of a resource and of everything in it. */
export interface DeleteChange {
  readonly action: "delete"
  readonly uid: string
  readonly expectedRevision?: string
  readonly expectedGeneration?: number
}

export type Change = CreateChange | UpdateChange | DeleteChange

/** What became of one change. A deletion answers for the resource itself, not for what it contains. */
export interface Written {
  readonly uid: string
  readonly generation: number
  readonly revision: string
  readonly createdAt: Date
  readonly updatedAt: Date
}
