/** `AccessPolicy`: who may see the environments of a project at their addresses. */
import * as Schema from "effect/Schema"
import { progress, warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { singletonSection } from "./manifest-mapping.ts"
import { EnvironmentSlug, sharedPreview } from "./names.ts"

/** The one name that the resource has in its project. */
export const accessPolicyName = "access"
const mostEnvironments = 1_000

export const AccessMode = Schema.Literals([
  "public",
  "authenticated",
  "organization",
  "invite_only"
]).annotate({
  identifier: "AccessMode",
  description:
    "Everybody; whoever has an account; members of the organization; accounts whose e-mail address is invited"
})
export type AccessMode = typeof AccessMode.Type
export const isAccessMode = Schema.is(AccessMode)

export const PreviewMode = Schema.Literals([...AccessMode.literals, "inherit"])

export const AccessPolicySpec = Schema.Struct({
  mode: withDefault(AccessMode, "public", "Who may see an environment of which nothing else is said"),
  previewMode: withDefault(
    PreviewMode,
    "inherit",
    "Who may see `preview` and previews of pull requests; `inherit`: the same as `mode`"
  ),
  environments: withDefault(
    Schema.Record(EnvironmentSlug, AccessMode).check(Schema.isMaxProperties(mostEnvironments)),
    {},
    "Environments with a mode of their own, which goes before the others"
  )
}).annotate({ identifier: "AccessPolicySpec" })
export type AccessPolicySpec = typeof AccessPolicySpec.Type
export const AccessPolicyInput = inputOf(AccessPolicySpec)

/** Who may see an environment. Without a policy everybody may. `svc_access_mode` says the same in SQL. */
export const accessModeOf = (
  policy: AccessPolicySpec | undefined,
  environment: string,
  /** It belongs to the preview of a pull request. */
  isPreview: boolean = environment === sharedPreview
): AccessMode => {
  if (policy === undefined) return "public"
  const { mode, previewMode, environments } = policy
  if (Object.hasOwn(environments, environment)) return environments[environment] ?? mode
  return isPreview && previewMode !== "inherit" ? previewMode : mode
}

export const AccessPolicyStatus = Schema.Struct({
  /** The mode that is in force in each environment. */
  environments: Schema.Record(Schema.String, AccessMode)
}).annotate({ identifier: "AccessPolicyStatus" })
export type AccessPolicyStatus = typeof AccessPolicyStatus.Type

export const AccessPolicy = defineKind({
  name: "AccessPolicy",
  summary: "Who may see the environments of a project at their addresses.",
  scope: "project",
  spec: AccessPolicySpec,
  status: AccessPolicyStatus,
  fields: Object.keys(AccessPolicySpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: true,
  deleteRole: "admin",
  reasons: {
    AddressesPending: progress("An environment has no address yet"),
    EdgeUnreachable: warning("No edge is at work, or none of them answers"),
    EnvironmentMissing: warning("It names an environment that the project does not have")
  },
  manifest: singletonSection(
    "access",
    accessPolicyName,
    "Who may see the project's environments",
    AccessPolicyInput.fields
  ),
  deadlineSeconds: 60
})
