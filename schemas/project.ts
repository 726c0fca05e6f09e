/** `Project`: a container of environments. It is ready as soon as it exists. */
import * as Schema from "effect/Schema"
import { Region } from "./catalog.ts"
import { DisplayName, StoredName } from "./display-text.ts"
import { inputOf } from "./input.ts"
import { defineKind } from "./kind.ts"
import { section } from "./manifest-mapping.ts"
import { Name } from "./names.ts"

export const GitSource = Schema.Struct({
  repo: Schema.String.check(
    Schema.isPattern(/^[\w.-]+\/[\w.-]+$/u, {
      expected: "`<owner>/<name>` of word characters, dots and dashes"
    })
  ).annotateKey({ description: "Owner and name" }),
  ref: Schema.optionalKey(Schema.NonEmptyString.check(Schema.isMaxLength(255))).annotateKey({
    description: "Branch, tag or commit"
  })
}).annotate({ identifier: "GitSource" })

export const RuntimeClass = Schema.Literals(["scale-to-zero", "always-on"]).annotate({
  identifier: "RuntimeClass"
})

export const PreviewData = Schema.Literals(["forbidden", "allowed"]).annotate({
  identifier: "PreviewData",
  description: "Whether the environment `preview` may hold copies of production data"
})

export const ProjectSpec = Schema.Struct({
  name: StoredName,
  runtimeClass: RuntimeClass.annotateKey({ description: "Whether it runs without requests" }),
  /** Where an always-on project computes; absent for a project that scales to zero. */
  region: Schema.optionalKey(Region),
  git: Schema.optionalKey(GitSource).annotateKey({ description: "Where its source is" }),
  /** Whether the environment `preview` may hold branches of production data. Absent: it may not. */
  previewData: Schema.optionalKey(PreviewData)
}).annotate({ identifier: "ProjectSpec" })
export type ProjectSpec = typeof ProjectSpec.Type
/** What users may give of a project, besides its slug. */
const ProjectInput = inputOf(ProjectSpec)

/** A container has nothing of its own to report: its phase and conditions say it all. */
export const ContainerStatus = Schema.Struct({}).annotate({ identifier: "ContainerStatus" })
export type ContainerStatus = typeof ContainerStatus.Type

export const Project = defineKind({
  name: "Project",
  summary: "A container of environments, with the source and the runtime of one application.",
  scope: "organization",
  spec: ProjectSpec,
  status: ContainerStatus,
  fields: Object.keys(ProjectSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: false,
  regional: true,
  deleteRole: "owner",
  reasons: {},
  manifest: section({
    section: null,
    fields: {
      ...ProjectInput.fields,
      name: DisplayName.annotateKey({ description: "What people call it" }),
      slug: Name.annotateKey({ description: "What names it in paths; it cannot change" }),
      region: Schema.optionalKey(Region).annotateKey({
        description: "Where an always-on project computes; left out for one that scales to zero"
      })
    },
    entries: ({ name, slug, runtimeClass, region, git, previewData }) => [
      {
        path: [],
        environment: null,
        name: slug,
        spec: {
          name,
          runtimeClass,
          ...(region === undefined ? {} : { region }),
          ...(previewData === undefined ? {} : { previewData }),
          ...(git === undefined ? {} : { git })
        }
      }
    ],
    assemble: ([project]) => (project === undefined ? {} : { slug: project.name, ...project.spec })
  }),
  deadlineSeconds: 3600
})
