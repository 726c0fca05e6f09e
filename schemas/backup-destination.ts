/** `BackupDestination`: object storage of the organization's own, where copies of backups are kept. */
import * as Schema from "effect/Schema"
import { warning } from "./condition.ts"
import { defineKind } from "./kind.ts"

/** Https, a host, perhaps a port and a path: nothing that would be shown and should not, or that is not sent. */
export const DestinationEndpoint = Schema.String.check(
  Schema.isMaxLength(500),
  Schema.makeFilter((text: string) => {
    if (!/^https:\/\/[^\s]+$/i.test(text) || !URL.canParse(text)) return "must be an https:// URL"
    const url = new URL(text)
    if (url.username !== "" || url.password !== "") return "must not hold a user name or a password"
    return url.search !== "" || url.hash !== "" || text.includes("?") || text.includes("#")
      ? "must not have a query or a fragment"
      : undefined
  })
).annotate({ format: "uri", description: "Base URL of an S3-compatible service" })

export const BucketName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$/u, {
    expected: "3 to 63 letters, digits, dots, dashes or underscores"
  })
)

/** Segments with single slashes between them; slashes at the ends are taken off. */
export const DestinationPrefix = Schema.String.check(
  Schema.isMaxLength(300),
  Schema.makeFilter((text: string) => {
    const inner = text.replaceAll(/^\/|\/$/g, "")
    if (inner === "") return undefined
    if (!/^[A-Za-z0-9!_.*'() /+@=:,-]+$/.test(inner))
      return "must be of letters, digits, spaces, slashes and ! _ . * ' ( ) + @ = : , -"
    return inner.split("/").some((segment) => segment === "" || segment === "." || segment === "..")
      ? "must not have empty segments, . or .."
      : undefined
  })
).annotate({ description: "What the keys of all objects begin with" })

export const DestinationRegion = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/u, {
    expected: "the name of a region, such as eu-central-1"
  })
)

export const BackupDestinationSpec = Schema.Struct({
  endpoint: Schema.String,
  bucket: Schema.String,
  prefix: Schema.String,
  region: Schema.NullOr(Schema.String),
  /** The configuration in force. It and its credentials are kept apart, also after the next one is made. */
  version: Schema.Int
}).annotate({ identifier: "BackupDestinationSpec" })
export type BackupDestinationSpec = typeof BackupDestinationSpec.Type

export const BackupDestinationStatus = Schema.Struct({
  /** The configuration that was tested last. */
  version: Schema.Int
}).annotate({ identifier: "BackupDestinationStatus" })
export type BackupDestinationStatus = typeof BackupDestinationStatus.Type

export const BackupDestination = defineKind({
  name: "BackupDestination",
  summary: "Object storage of the organization's own, where copies of backups are kept.",
  scope: "organization",
  spec: BackupDestinationSpec,
  status: BackupDestinationStatus,
  fields: Object.keys(BackupDestinationSpec.fields),
  immutable: [],
  internal: ["version"],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    AccessFailed: warning("The last test of writing, reading and deleting an object did not succeed")
  },
  deadlineSeconds: 900
})
