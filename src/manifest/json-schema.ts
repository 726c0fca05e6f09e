/** The manifest as a JSON Schema (2020-12), for editors and other programs. It is made of what the parser goes by. */
import * as Schema from "effect/Schema"
import { Manifest } from "#schemas/manifest.ts"
import { type JsonObject, plainSchemas } from "#src/api/definition/json-schema.ts"

export const manifestJsonSchema = (): JsonObject => {
  const { schema, definitions } = Schema.toJsonSchemaDocument(Manifest, { onExcessProperty: "error" })
  return plainSchemas({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Manifest",
    description: "Everything that an organization wants of the platform, as one document",
    ...schema,
    $defs: definitions
  })
}
