/** What `svc.yaml` of a repository says of its manifest. */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { ManifestPath } from "#schemas/git-source.ts"

export const settingsFile = "svc.yaml"
/** Bytes of it. */
export const longestSettings = 64 * 1024
const usualManifest = "svc.manifest.yaml"

/** Other keys of the file are other readers' matter. */
const decode = Schema.decodeUnknownOption(
  Schema.NullOr(Schema.Struct({ manifest: Schema.optionalKey(Schema.String) })),
  { onExcessProperty: "ignore" }
)
const isPath = Schema.is(ManifestPath)

/** Path of the manifest, where nobody says it otherwise; none: the file cannot be read, or names no file of the repository. */
export const manifestPathOf = (text: string | undefined): Option.Option<string> => {
  if (text === undefined) return Option.some(usualManifest)
  return Option.liftThrowable((source: string): unknown => parse(source, { maxAliasCount: 10 }))(text).pipe(
    Option.flatMap(decode),
    Option.map((file) => (file?.manifest ?? usualManifest).replace(/^\.\//, "")),
    Option.filter(isPath)
  )
}
