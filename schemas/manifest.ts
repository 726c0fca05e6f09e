/**
 * The manifest document: everything an organization wants, as one file that is kept in git. A project in it has the
 * keys that the kinds state.
 *
 * Bounds that no field names keep the cost of a document in proportion to its size.
 */
import * as Schema from "effect/Schema"
import { kinds } from "./index.ts"
import type { Kind } from "./kind.ts"
import type { ManifestSection } from "./manifest-mapping.ts"
import { OrganizationSlug } from "./names.ts"
import { unavailableFields } from "./unavailable-sections.ts"

/** Of a union the intersection. */
type All<Union> = (Union extends unknown ? (one: Union) => void : never) extends (one: infer I) => void
  ? I
  : never
type FieldsOf<K> =
  K extends Kind<string, unknown, unknown, unknown, infer Section>
    ? Section extends ManifestSection<infer Fields>
      ? Fields
      : never
    : never
type KindFields = All<FieldsOf<(typeof kinds)[number]>>

// Which kind has which keys is lost to the compiler where they are put together.
const kindFields = Object.assign({}, ...kinds.map(({ manifest }: Kind) => manifest?.fields)) as KindFields

export const ManifestProject = Schema.Struct({ ...kindFields, ...unavailableFields }).annotate({
  identifier: "ManifestProject"
})
export type ManifestProject = typeof ManifestProject.Type

export const Manifest = Schema.Struct({
  version: Schema.Literal(1),
  organization: OrganizationSlug.annotateKey({ description: "Slug of the organization" }),
  projects: Schema.optionalKey(Schema.Array(ManifestProject).check(Schema.isMaxLength(20_000))).annotateKey({
    description: "All projects of the organization; left out: they stay as they are"
  })
}).annotate({ identifier: "ManifestDocument" })
export type Manifest = typeof Manifest.Type
