/** `GitSource`: keeps the organization what a manifest in a git repository says. */
import * as Schema from "effect/Schema"
import { progress, warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { Uid } from "./names.ts"

/** Https, a host, perhaps a port, and a path: nothing that would be shown and should not, or that is not sent. */
export const RepositoryUrl = Schema.String.check(
  Schema.isMaxLength(500),
  Schema.makeFilter((text: string) => {
    if (!/^https:\/\/[^\s]+$/i.test(text) || !URL.canParse(text)) return "must be an https:// URL"
    const url = new URL(text)
    if (url.username !== "" || url.password !== "") return "must not hold a user name or a password"
    if (url.pathname === "/") return "must name a repository"
    return text.includes("?") || text.includes("#") ? "must not have a query or a fragment" : undefined
  })
).annotate({ format: "uri", description: "Where the repository is cloned from, over https" })

/** As git-check-ref-format(1) takes them; what begins with a dash would be read as an option. */
export const GitRef = Schema.String.check(
  Schema.isMaxLength(255),
  Schema.isPattern(/^[A-Za-z0-9_][A-Za-z0-9_./+@-]*$/u, { expected: "a branch, a tag or a commit" }),
  Schema.makeFilter((text: string) =>
    /\.\.|\/\/|@\{|\/\.|\.lock(\/|$)|[/.]$/.test(text) ? "must be a branch, a tag or a commit" : undefined
  )
)

export const ManifestPath = Schema.String.check(
  Schema.isMaxLength(500),
  Schema.isPattern(/^[^\p{Cc}\\/][^\p{Cc}\\]*\.(ya?ml|json)$/u, {
    expected: "the path of a .yaml, .yml or .json file, without a leading slash"
  }),
  Schema.makeFilter((text: string) =>
    text.split("/").some((segment) => segment === "" || segment === "." || segment === "..")
      ? "must not have empty segments, . or .."
      : undefined
  )
)

const day = 86_400

export const GitSourceSpec = Schema.Struct({
  url: RepositoryUrl,
  connection: withDefault(
    Schema.NullOr(Uid),
    null,
    "Id of the git connection whose credential is used; null: the repository needs none"
  ),
  ref: withDefault(GitRef, "main", "Branch, tag or commit"),
  path: Schema.optionalKey(ManifestPath).annotateKey({
    description:
      "File of the manifest; left out: what `svc.yaml` of the repository names, else svc.manifest.yaml"
  }),
  intervalSeconds: withDefault(
    Schema.Int.check(Schema.isBetween({ minimum: 60, maximum: day })),
    300,
    "How often it is looked at without being told of a change"
  ),
  prune: withDefault(Schema.Boolean, false, "Whether what a present list no longer names is deleted"),
  suspended: withDefault(Schema.Boolean, false, "Whether it is neither looked at nor applied"),
  reviewed: withDefault(
    Schema.Boolean,
    false,
    "Whether it applies only what a pull request showed as its plan before it was merged; takes a connection"
  ),
  /** Who made it or changed it last, as in audit records: it may do no more than they may. */
  principal: Schema.String
}).annotate({ identifier: "GitSourceSpec" })
export type GitSourceSpec = typeof GitSourceSpec.Type
/** What users may give of a source, besides its name. */
export const GitSourceInput = inputOf(GitSourceSpec, ["principal"])

export const GitSourceFault = Schema.Struct({
  code: Schema.String,
  message: Schema.String,
  /** Of the manifest, where it is at fault. */
  errors: Schema.Array(
    Schema.Struct({
      pointer: Schema.String,
      message: Schema.String,
      line: Schema.optionalKey(Schema.Int),
      column: Schema.optionalKey(Schema.Int)
    })
  )
}).annotate({ identifier: "GitSourceFault" })
export type GitSourceFault = typeof GitSourceFault.Type

export const GitSourcePlan = Schema.Struct({
  planId: Schema.String.annotateKey({
    description: "`svc apply --plan` carries it out, for as long as it is kept"
  }),
  commit: Schema.String,
  createdAt: Schema.String,
  expiresAt: Schema.String,
  /** Of what it does, and of what it was made for; absent in those of earlier releases. */
  digest: Schema.optionalKey(Schema.String),
  summary: Schema.Struct({
    create: Schema.Int,
    update: Schema.Int,
    replace: Schema.Int,
    delete: Schema.Int
  }),
  changes: Schema.Array(
    Schema.Struct({
      address: Schema.String,
      action: Schema.Literals(["create", "update", "replace", "delete"]),
      risk: Schema.Literals(["read", "write", "destructive", "dangerous"]),
      role: Schema.Literals(["member", "admin", "owner"]).annotateKey({
        description: "The lowest role that may carry it out"
      }),
      fields: Schema.Array(Schema.String).annotateKey({
        description: "Pointers to what changes; the first of them"
      })
    })
  ).annotateKey({ description: "The first 100" })
}).annotate({ identifier: "GitSourcePlan" })
export type GitSourcePlan = typeof GitSourcePlan.Type

export const GitSourceStatus = Schema.Struct({
  commit: Schema.NullOr(Schema.String).annotateKey({ description: "Seen at the ref by the last look" }),
  lookedAt: Schema.NullOr(Schema.String),
  planned: Schema.NullOr(GitSourcePlan).annotateKey({
    description: "The last plan that had something to change"
  }),
  applied: Schema.NullOr(
    Schema.Struct({
      commit: Schema.String.annotateKey({ description: "What the organization was made to be last" }),
      at: Schema.String,
      planId: Schema.NullOr(Schema.String).annotateKey({ description: "null: there was nothing to change" })
    })
  ),
  drift: Schema.NullOr(
    Schema.Struct({
      at: Schema.String,
      addresses: Schema.Array(Schema.String).annotateKey({ description: "The first 100" })
    })
  ).annotateKey({
    description: "What was found changed by others since it was applied; the last time that there was some"
  }),
  fault: Schema.NullOr(GitSourceFault).annotateKey({
    description: "Why the last look did not end in what the manifest says"
  }),
  failures: Schema.Int.annotateKey({ description: "Looks in a row that ended so" })
}).annotate({ identifier: "GitSourceStatus" })
export type GitSourceStatus = typeof GitSourceStatus.Type

export const GitSource = defineKind({
  name: "GitSource",
  summary: "Keeps the organization what a manifest in a git repository says.",
  scope: "organization",
  spec: GitSourceSpec,
  status: GitSourceStatus,
  fields: Object.keys(GitSourceSpec.fields),
  immutable: [],
  internal: ["principal"],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {
    Suspended: progress("It is suspended: the repository is not looked at and nothing is applied"),
    RepositoryUnreachable: warning("The repository, the commit or the file could not be read"),
    ManifestInvalid: warning("The manifest has faults; nothing of it was applied"),
    PlanBlocked: warning("The plan cannot be applied as it is, or wants to be confirmed by a person"),
    OwnerNeeded: warning("The plan has changes that only an owner may make"),
    RightsLost: warning("Who made it may not apply a manifest any more"),
    NotReviewed: warning("No merged pull request has shown the plan; it is left to people"),
    BillingInactive: warning("Billing of the organization is not active")
  },
  deadlineSeconds: 3600
})
