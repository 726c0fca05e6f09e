/** What an engine process of these tests is told when it starts, and the kind of resource that it converges. */
import * as Schema from "effect/Schema"
import { defineKind } from "#schemas/kind.ts"

export const Settings = Schema.Struct({
  name: Schema.String,
  databaseUrl: Schema.String,
  /** File of the world outside. */
  place: Schema.String,
  fenced: Schema.Boolean,
  driftMs: Schema.Int,
  concurrency: Schema.Int,
  leaseMs: Schema.Int,
  heartbeatMs: Schema.Int,
  pollMs: Schema.Int
})
export type Settings = typeof Settings.Type

export const ThingSpec = Schema.Struct({
  size: Schema.Int,
  /** How long a look and a write take. */
  lookMs: Schema.Int,
  writeMs: Schema.Int
})
export type ThingSpec = typeof ThingSpec.Type

export const Thing = defineKind({
  name: "Thing",
  summary: "Exists in tests only.",
  scope: "environment",
  spec: ThingSpec,
  status: Schema.Struct({ size: Schema.Int }),
  fields: ["size", "lookMs", "writeMs"],
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {},
  deadlineSeconds: 60
})
