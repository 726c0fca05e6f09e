/** `Environment`: a container of the things that run together. It is ready as soon as it exists. */
import * as Schema from "effect/Schema"
import { defineKind } from "./kind.ts"
import { implicitEnvironments } from "./names.ts"
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
  manifest: {
    section: "environments",
    entries: ({ environments }) =>
      environments === undefined
        ? undefined
        : Object.keys(environments).map((name) => ({
            path: ["environments", name],
            environment: null,
            name,
            spec: {}
          })),
    // The implicit ones are never declared and never deleted by a plan.
    manages: ({ name }) => !implicitEnvironments.some((one) => one === name),
    assemble: (resources) =>
      resources.length === 0
        ? {}
        : { environments: Object.fromEntries(resources.map(({ name }) => [name, {}])) }
  },
  deadlineSeconds: 3600
})
