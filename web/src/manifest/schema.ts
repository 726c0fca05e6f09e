/** What a JSON Schema says of one place of a document that is still being written. */

export type JsonSchema = { readonly [keyword: string]: unknown }
/** Keys and indexes from the root on. */
export type Path = ReadonlyArray<string | number>

export interface KeyOption {
  readonly name: string
  readonly required: boolean
  readonly holds: "map" | "list" | "value"
  readonly type: string
  readonly description: string
}

export interface ValueOption {
  readonly value: string
  readonly description: string
}

const isSchema = (value: unknown): value is JsonSchema =>
  typeof value === "object" && value !== null && !Array.isArray(value)
const schemaIn = (value: unknown, key: string | number): JsonSchema | undefined => {
  const found = isSchema(value) && Object.hasOwn(value, key) ? value[key] : undefined
  return isSchema(found) ? found : undefined
}
const listIn = (schema: JsonSchema, keyword: string): ReadonlyArray<unknown> => {
  const found = schema[keyword]
  return Array.isArray(found) ? found : []
}
const textIn = (schema: JsonSchema, keyword: string): string => {
  const found = schema[keyword]
  return typeof found === "string" ? found : ""
}

/** A schema, and every other that it consists of or lets one choose from, in which `$ref` is followed once each. */
const unfolded = (root: JsonSchema, schema: JsonSchema): ReadonlyArray<JsonSchema> => {
  const found = new Set<JsonSchema>()
  const add = (one: unknown): void => {
    if (!isSchema(one) || found.has(one)) return
    found.add(one)
    const name = /^#\/\$defs\/([^/]+)$/.exec(textIn(one, "$ref"))?.[1]
    if (name !== undefined) add(schemaIn(root["$defs"], name))
    for (const keyword of ["allOf", "anyOf", "oneOf"]) for (const part of listIn(one, keyword)) add(part)
  }
  add(schema)
  return [...found]
}

/** A choice whose discriminator says something else than what is written is none. */
const fits = (schema: JsonSchema, value: unknown): boolean => {
  if (!isSchema(value)) return true
  return Object.entries(value).every(([key, given]) => {
    const allowed = listIn(schemaIn(schema["properties"], key) ?? {}, "enum")
    return allowed.length === 0 || given === null || typeof given === "object" || allowed.includes(given)
  })
}

const inside = (schema: JsonSchema, part: string | number): JsonSchema | undefined => {
  if (typeof part === "number") return schemaIn(schema, "items")
  const property = schemaIn(schema["properties"], part)
  if (property !== undefined) return property
  const patterns = schema["patternProperties"]
  const pattern = isSchema(patterns)
    ? Object.keys(patterns).find((pattern) => new RegExp(pattern, "u").test(part))
    : undefined
  return pattern === undefined ? schemaIn(schema, "additionalProperties") : schemaIn(patterns, pattern)
}

const valueIn = (value: unknown, part: string | number): unknown =>
  typeof value === "object" && value !== null ? Reflect.get(value, part) : undefined

/** Everything that the schema says of what is at this path of the document. */
export const schemasAt = (root: JsonSchema, path: Path, document: unknown): ReadonlyArray<JsonSchema> => {
  let value = document
  let schemas = unfolded(root, root)
  for (const part of path) {
    value = valueIn(value, part)
    schemas = schemas.flatMap((schema) => {
      const next = inside(schema, part)
      return next === undefined ? [] : unfolded(root, next)
    })
    schemas = schemas.filter((schema) => fits(schema, value))
  }
  return schemas
}

const typesOf = (schemas: ReadonlyArray<JsonSchema>): ReadonlyArray<string> =>
  [
    ...new Set(
      schemas.flatMap((schema) => (textIn(schema, "type") === "" ? listIn(schema, "type") : [schema["type"]]))
    )
  ].map(String)

/** What a field or a value is, in the words of whoever stated it. */
export const describe = (schemas: ReadonlyArray<JsonSchema>): string =>
  schemas.map((schema) => textIn(schema, "description")).find((text) => text !== "") ?? ""

/** The keys that a map may have here. */
export const keysAt = (root: JsonSchema, path: Path, document: unknown): ReadonlyArray<KeyOption> => {
  const found = new Map<string, KeyOption>()
  for (const schema of schemasAt(root, path, document)) {
    const properties = schema["properties"]
    if (!isSchema(properties)) continue
    for (const name of Object.keys(properties)) {
      if (found.has(name)) continue
      const own = schemasAt(root, [...path, name], document)
      const types = typesOf(own)
      found.set(name, {
        name,
        required: listIn(schema, "required").includes(name),
        holds: types.includes("object") ? "map" : types.includes("array") ? "list" : "value",
        type: types.join(" or "),
        description: describe(own)
      })
    }
  }
  return [...found.values()]
}

/** The values that the schema names for this place. */
export const valuesAt = (root: JsonSchema, path: Path, document: unknown): ReadonlyArray<ValueOption> => {
  const schemas = schemasAt(root, path, document)
  const named = schemas.flatMap((schema) => [
    ...listIn(schema, "enum"),
    ...("const" in schema ? [schema["const"]] : []),
    ...listIn(schema, "examples")
  ])
  const types = typesOf(schemas)
  const plain = [
    ...(types.includes("boolean") ? [true, false] : []),
    ...(types.includes("null") ? [null] : [])
  ]
  return [...new Set([...named, ...plain].filter((one) => typeof one !== "object" || one === null))].map(
    (value) => ({ value: String(value), description: describe(schemas) })
  )
}
