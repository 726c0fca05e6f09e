/**
 * Bodies and parameters that nobody should send: what a JSON Schema describes, with parts of it replaced, written
 * down as JSON that may be broken.
 */
import * as fc from "fast-check"

/** What a JSON Schema of the specification may say, as far as it matters here. */
export interface JsonSchema {
  readonly $ref?: string
  readonly type?: string | ReadonlyArray<string>
  readonly enum?: ReadonlyArray<unknown>
  readonly const?: unknown
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly oneOf?: ReadonlyArray<JsonSchema>
  readonly allOf?: ReadonlyArray<JsonSchema>
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: ReadonlyArray<string>
  readonly items?: JsonSchema
  readonly minItems?: number
  readonly pattern?: string
  readonly format?: string
  readonly minimum?: number
  readonly maximum?: number
}

/** Text that goes into the JSON as it is. */
class Raw {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

/** Values that fit. Addresses lead nowhere: nothing outside of this machine is to be asked. */
export const fitting = (
  schema: JsonSchema,
  root: Readonly<Record<string, JsonSchema>>
): fc.Arbitrary<unknown> => {
  if (schema.$ref !== undefined) return fitting(root[schema.$ref.split("/").at(-1) ?? ""] ?? {}, root)
  if (schema.const !== undefined) return fc.constant(schema.const)
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  const choices = schema.anyOf ?? schema.oneOf
  if (choices !== undefined) return fc.oneof(...choices.map((one) => fitting(one, root)))
  const whole: JsonSchema = Object.assign({}, schema, ...(schema.allOf ?? []))
  const types = typeof whole.type === "string" ? [whole.type] : (whole.type ?? [])
  if (types.length > 1) return fc.oneof(...types.map((type) => fitting({ ...whole, type }, root)))
  switch (types[0]) {
    case "object": {
      const keys = Object.entries(whole.properties ?? {})
      const required = keys.filter(([key]) => whole.required?.includes(key)).map(([key]) => key)
      return fc.record(Object.fromEntries(keys.map(([key, inner]) => [key, fitting(inner, root)])), {
        requiredKeys: required
      })
    }
    case "array":
      return fc.array(fitting(whole.items ?? {}, root), { minLength: whole.minItems ?? 0, maxLength: 3 })
    case "integer":
    case "number":
      return fc.integer({
        min: Math.ceil(whole.minimum ?? 0),
        max: Math.floor(Math.min(whole.maximum ?? 100, 2 ** 31))
      })
    case "boolean":
      return fc.boolean()
    case "null":
      return fc.constant(null)
    case "string":
      return text(whole)
    default:
      // Where anything may stand, depth is what nothing else bounds.
      return fc.oneof(fc.jsonValue({ maxDepth: 3 }), nested)
  }
}

const text = ({ pattern, format }: JsonSchema): fc.Arbitrary<string> => {
  if (format === "uri")
    return fc.constantFrom("https://127.0.0.1:1/a", "https://[::1]:1", "https://invalid.invalid")
  if (format === "email") return fc.constantFrom("one@example.test", "two@example.test")
  if (format === "date-time") return fc.constantFrom("2030-01-01T00:00:00.000Z", "0001-01-01T00:00:00Z")
  if (format === "uuid") return fc.uuid()
  const simple = pattern !== undefined && !/\\p|\(\?/.test(pattern)
  return simple ? fc.stringMatching(new RegExp(pattern)).map((value) => value.slice(0, 100)) : words
}
const words = fc.constantFrom(
  "local",
  "db-n1",
  "cache-n1",
  "0 0 1 1 *",
  "/path",
  "production",
  "a",
  "aa",
  "****"
)

const nested = fc
  .tuple(fc.constantFrom("[", '{"a":', '[{"a":'), fc.constantFrom(30, 62, 66, 1_000, 9_000))
  .map(([open, depth]) => {
    const close = { "[": "]", '{"a":': "}", '[{"a":': "}]" }[open] ?? ""
    return new Raw(`${open.repeat(depth)}0${close.repeat(depth)}`)
  })
const strangeTexts = fc.constantFrom(
  ...[
    "\0",
    "a\0b",
    "\ud800",
    "x\udc00",
    "\u202e",
    "\u001b[2J",
    " a ",
    "\ufeff",
    "../..",
    "' or 1=1 --",
    "%00"
  ],
  ...[
    "9".repeat(400),
    "x".repeat(20_000),
    "__proto__",
    "constructor",
    "toString",
    "NaN",
    "-1",
    "1e9",
    "",
    "null"
  ],
  ...[
    "275760-09-13T00:00:00.001Z",
    "294277-01-01T00:00:00Z",
    "-271821-04-20T00:00:00Z",
    "${a",
    "{{a}}",
    "$ref"
  ]
)
const strangeNumbers = fc
  .constantFrom("1e400", "-1e400", "1e-400", "-0", "0.1", "9007199254740993", "2147483648", "9".repeat(400))
  .map((number) => new Raw(number))
const small: ReadonlyArray<unknown> = [null, true, [], {}, [[]], 0, -1, new Raw('{"__proto__":{"a":1}}')]
const junk: fc.Arbitrary<unknown> = fc.oneof(
  nested,
  strangeTexts,
  strangeNumbers,
  fc.jsonValue({ maxDepth: 4 }),
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom(...small),
  fc.constant(Array.from({ length: 2_000 }, () => 0)),
  fc.constant(new Raw('{"a":1,"a":2}'))
)

/** The value with some of its parts replaced, or a key more. */
const mutated = (fit: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc
    .tuple(fit, fc.array(fc.tuple(fc.nat(1_000), junk, fc.boolean()), { maxLength: 3, size: "max" }))
    .map(([value, changes]) =>
      changes.reduce((now, [at, part, add]) => {
        const places = placesIn(now)
        return replaced(now, places[at % places.length] ?? [], part, add)
      }, value)
    )

type Place = ReadonlyArray<string>
const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !(value instanceof Raw)

const placesIn = (value: unknown, at: Place = []): ReadonlyArray<Place> =>
  isMap(value)
    ? [
        at,
        ...Object.entries(value)
          .slice(0, 20)
          .flatMap(([key, inner]) => placesIn(inner, [...at, key]))
      ]
    : [at]

const replaced = (value: unknown, [first, ...rest]: Place, part: unknown, add: boolean): unknown => {
  if (first === undefined)
    return add && isMap(value) && !Array.isArray(value) ? { ...value, unexpected: part } : part
  if (Array.isArray(value))
    return value.map((inner, index) => (String(index) === first ? replaced(inner, rest, part, add) : inner))
  return isMap(value) ? { ...value, [first]: replaced(value[first], rest, part, add) } : part
}

const written = (value: unknown): string => {
  if (value instanceof Raw) return value.text
  if (Array.isArray(value)) return `[${value.map(written).join(",")}]`
  if (!isMap(value)) return JSON.stringify(value) ?? "null"
  return `{${Object.entries(value)
    .map(([key, inner]) => `${JSON.stringify(key)}:${written(inner)}`)
    .join(",")}}`
}

/** Bytes of a body: usually JSON, sometimes cut, doubled, or with bytes in it that are no text. */
export const bodies = (fit: fc.Arbitrary<unknown>): fc.Arbitrary<Uint8Array<ArrayBuffer>> =>
  fc
    .tuple(
      fc.oneof({ weight: 1, arbitrary: fit }, { weight: 2, arbitrary: mutated(fit) }),
      fc.oneof(
        { weight: 6, arbitrary: fc.constant(undefined) },
        {
          weight: 1,
          arbitrary: fc.tuple(
            fc.nat(1_000),
            fc.constantFrom("", "ff", "c328", "eda080", "00", "efbbbf", "22", "7b", "5b5b")
          )
        }
      )
    )
    .map(([value, damage]) => {
      const bytes = new TextEncoder().encode(written(value))
      if (damage === undefined) return bytes
      const [at, put] = damage
      const cut = bytes.length === 0 ? 0 : at % bytes.length
      return Uint8Array.from([
        ...bytes.subarray(0, cut),
        ...Buffer.from(put, "hex"),
        ...(put === "" ? [] : bytes.subarray(cut))
      ])
    })

/** A part of a path or of a query, as text before it is escaped. What is longer the runtime refuses, and no code of ours. */
export const parameters = (fit: fc.Arbitrary<unknown>): fc.Arbitrary<string> =>
  fc
    .oneof(
      { weight: 3, arbitrary: fit.map(String) },
      { weight: 1, arbitrary: strangeTexts },
      { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 10 }) }
    )
    .map((value) => value.slice(0, 2_000))
