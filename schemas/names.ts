/** The identifiers that users choose, with the one pattern each must match everywhere it is accepted. */
import * as Schema from "effect/Schema"

/** With the flag `u` that patterns of JSON Schema have, or the specification of the API would not show them. */
const pattern = (regex: RegExp, expected: string) =>
  Schema.String.check(Schema.isPattern(new RegExp(regex, "u"), { expected }))

/** Resource names: 2 to 62 characters. */
export const Name = pattern(
  /^[a-z][a-z0-9-]{1,61}$/,
  "2 to 62 lowercase letters, digits or dashes, starting with a letter"
).annotate({
  identifier: "Name",
  description: "Name of a resource, unique among its kind in one environment"
})

/** Environment slugs: 1 to 39 characters. */
export const EnvironmentSlug = pattern(
  /^[a-z][a-z0-9-]{0,38}$/,
  "1 to 39 lowercase letters, digits or dashes, starting with a letter"
).annotate({
  identifier: "EnvironmentSlug",
  description: "Slug of an environment; `production` is the default"
})

export const OrganizationSlug = pattern(
  /^[a-z][a-z0-9-]{1,38}$/,
  "2 to 39 lowercase letters, digits or dashes, starting with a letter"
).annotate({ identifier: "OrganizationSlug" })

export const VariableKey = pattern(
  /^[A-Z][A-Z0-9_]{0,63}$/,
  "1 to 64 uppercase letters, digits or underscores, starting with a letter"
).annotate({ identifier: "VariableKey", description: "Name of an environment variable" })

export const Uid = pattern(
  /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  "a UUID in lowercase"
).annotate({ identifier: "Uid", format: "uuid", description: "Identifier of a record (UUID version 7)" })

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
/** True for text that a path parameter must read as an id, never as a slug. */
export const looksLikeUid = (text: string): boolean => uuid.test(text)

/** Slugs that would collide with path segments or carry a meaning of their own. */
export const reservedSlugs: ReadonlySet<string> = new Set([
  "admin",
  "api",
  "auth",
  "docs",
  "health",
  "manifest",
  "me",
  "new",
  "resources",
  "settings",
  "spec",
  "svc",
  "system",
  "v1"
])

/** Environments every project has; they are never declared and never deleted by themselves. */
export const implicitEnvironments = ["production", "preview"] as const
export const defaultEnvironment = "production"
/** The environment that all previews of a project share their variables and settings from. */
export const sharedPreview = "preview"

const ofPullRequest = /^preview-[1-9][0-9]{0,8}$/
/** Slug of the environment that belongs to the preview of one pull request. */
export const previewSlug = (pullRequest: number): string => `${sharedPreview}-${pullRequest}`
/**
 * Whether previews of pull requests have such names; nobody else can take one. Which environment is a preview's, where it
 * stands says: users may have named theirs so before.
 */
export const isPullRequestPreview = (slug: string): boolean => ofPullRequest.test(slug)
