/**
 * Schemas as people and generators of clients read them best. The ones that come in mean the same, said in more
 * words than OpenAPI 3.1 needs.
 */
export type JsonObject = { readonly [key: string]: unknown }

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The document with every schema in it in its plain form. */
export const plainSchemas = (document: JsonObject): JsonObject => plainObject(document)

/** Keywords whose value is a map from names of one's own, not a schema. */
const maps: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "schemas",
  "responses"
])

/**
 * Without the defaults of fields: generators of clients make a field required that has one, also in requests. What a
 * description says of a default stays.
 */
export const withoutDefaults = (document: JsonObject): JsonObject =>
  Object.fromEntries(
    Object.entries(document).flatMap(([keyword, value]) =>
      keyword === "default"
        ? []
        : [[keyword, maps.has(keyword) && isObject(value) ? inEach(value) : inside(value)] as const]
    )
  )
const inside = (value: unknown): unknown =>
  Array.isArray(value) ? value.map(inside) : isObject(value) ? withoutDefaults(value) : value
const inEach = (named: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(named).map(([name, value]) => [name, inside(value)]))

const plain = (value: unknown): unknown =>
  Array.isArray(value) ? value.map(plain) : isObject(value) ? plainObject(value) : value

const plainObject = (value: JsonObject): JsonObject =>
  alternatives(
    together(withoutSafeBounds(Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)]))))
  )

/** That an integer is one which JavaScript can hold says nothing about the value. */
const withoutSafeBounds = (schema: JsonObject): JsonObject => {
  if (schema["type"] !== "integer") return schema
  const { minimum, maximum, ...rest } = schema
  return {
    ...rest,
    ...(minimum === undefined || minimum === Number.MIN_SAFE_INTEGER ? {} : { minimum }),
    ...(maximum === undefined || maximum === Number.MAX_SAFE_INTEGER ? {} : { maximum })
  }
}

/** `allOf` is for what cannot stand side by side because a keyword comes twice. */
const together = (schema: JsonObject): JsonObject => {
  const { allOf, ...rest } = schema
  if (!Array.isArray(allOf) || !allOf.every(isObject)) return schema
  const merged: Record<string, unknown> = { ...rest }
  for (const part of allOf) {
    for (const [keyword, value] of Object.entries(part)) {
      if (Object.hasOwn(merged, keyword)) return schema
      merged[keyword] = value
    }
  }
  return merged
}

/** One alternative is none, and "a string or null" is a list of types where there is no more to it than a type. */
const alternatives = (schema: JsonObject): JsonObject => {
  const { anyOf, ...rest } = schema
  if (!Array.isArray(anyOf) || !anyOf.every(isObject)) return schema
  if (anyOf.length === 1) return { ...anyOf[0], ...rest }
  if (anyOf.length !== 2) return schema
  const other = anyOf.find((one) => one["type"] !== "null")
  const hasNull = anyOf.some((one) => one["type"] === "null" && Object.keys(one).length === 1)
  if (!hasNull || other === undefined || typeof other["type"] !== "string") return schema
  const { type, enum: values, ...inner } = other
  return {
    ...inner,
    type: [type, "null"],
    ...(Array.isArray(values) ? { enum: [...values, null] } : {}),
    ...rest
  }
}
