/** `Environment`: a container of the things that run together. It is ready as soon as it exists. */
import * as Schema from "effect/Schema"
import { defineKind } from "./kind.ts"
import { ContainerStatus } from "./project.ts"

export const EnvironmentSpec = Schema.Struct({}).annotate({ identifier: "EnvironmentSpec" })
export type EnvironmentSpec = typeof EnvironmentSpec.Type

export const Environment = defineKind({
  name: "Environment",
  summary: "A container of databases, caches, variables and what else runs together.",
  scope: "project",
  spec: EnvironmentSpec,
  status: ContainerStatus,
  fields: Object.keys(EnvironmentSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  after: ["Project"],
  singleton: false,
  deleteRole: "owner",
  reasons: {},
  deadlineSeconds: 3600
})
