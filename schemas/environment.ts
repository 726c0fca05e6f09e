/** `Environment`: a container of the things that run together, with the address under which its app is reached. */
import * as Schema from "effect/Schema"
import { progress, warning } from "./condition.ts"
import { defineKind } from "./kind.ts"
import { section } from "./manifest-mapping.ts"
import { EnvironmentSlug, implicitEnvironments } from "./names.ts"

/** Scheme, host and port, as `URL.origin` writes them: two spellings of one origin are no change. */
export const Origin = Schema.String.check(
  Schema.isMaxLength(300),
  Schema.makeFilter((text: string) =>
    isOrigin(text) ? undefined : "must be an origin such as https://shop.example.com, without a path"
  )
).annotate({ identifier: "Origin", description: "Scheme, host and port under which the app answers" })

const isOrigin = (text: string): boolean => {
  if (!URL.canParse(text)) return false
  const { protocol, origin, pathname, search, hash, username, password } = new URL(text)
  const bare = pathname === "/" && search + hash + username + password === "" && !/[?#@]/.test(text)
  return bare && (protocol === "https:" || protocol === "http:") && origin !== "null"
}

export const EnvironmentSpec = Schema.Struct({
  /** Where cron and queue invocations go; absent until a deployment or somebody names it. */
  origin: Schema.optionalKey(Origin),
  /** Rises when the secret that invocations are signed with is replaced. */
  signingVersion: Schema.optionalKey(Schema.Int)
}).annotate({ identifier: "EnvironmentSpec" })
export type EnvironmentSpec = typeof EnvironmentSpec.Type

export const EnvironmentStatus = Schema.Struct({
  /** Its managed address: a URL. Absent until it has been given one. */
  address: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "EnvironmentStatus" })
export type EnvironmentStatus = typeof EnvironmentStatus.Type

export const EnvironmentFacts = Schema.Struct({
  /** First label of its managed address. Others know it by that, so it never changes. */
  label: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "EnvironmentFacts" })
export type EnvironmentFacts = typeof EnvironmentFacts.Type

/** A map without keys: `Schema.Struct({})` would take anything that is not null. */
const Empty = Schema.Record(Schema.String, Schema.Never.annotate({ expected: "nothing here" }))

export const Environment = defineKind({
  name: "Environment",
  summary: "A container of databases, caches, variables and what else runs together.",
  scope: "project",
  spec: EnvironmentSpec,
  status: EnvironmentStatus,
  facts: EnvironmentFacts,
  fields: Object.keys(EnvironmentSpec.fields),
  immutable: [],
  // A deployment says where the app answers, not the manifest; production and preview are in no manifest at all.
  internal: ["origin", "signingVersion"],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    NoEdge: progress("No edge is at work: its address is known and not served"),
    OriginUnusable: warning("Its origin cannot be looked up, or requests may not go there")
  },
  manifest: section({
    section: "environments",
    fields: {
      environments: Schema.optionalKey(
        Schema.Record(EnvironmentSlug, Empty).annotate({
          description: "Custom environments; production and preview exist by themselves"
        })
      )
    },
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
  }),
  deadlineSeconds: 3600
})
