/**
 * The fields of a specification as somebody gives them: in a manifest, in the body of a request, by flags. A kind
 * states each field once, with its description and its default; what may be left out and what a JSON Schema says of it
 * follow from that.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaGetter from "effect/SchemaGetter"

/** A field that may be left out: decoding a specification fills `value` in. JSON Schemas show both annotations. */
export const withDefault = <S extends Schema.Top>(schema: S, value: S["Encoded"], description?: string) =>
  Schema.optionalKey(Schema.toEncoded(schema))
    .annotateKey({ default: value, ...(description === undefined ? {} : { description }) })
    .pipe(
      Schema.decodeTo(schema, {
        decode: SchemaGetter.withDefault(Effect.succeed(value)),
        encode: SchemaGetter.passthrough()
      })
    )

/**
 * A value with a check that no JSON Schema can express, such as whether a time zone exists. Input has the form only;
 * decoding a specification checks the value.
 */
export const checkedWhenDecoded = <S extends Schema.Top>(
  form: S,
  checked: Schema.Codec<S["Type"], S["Type"]>
) => form.pipe(Schema.decodeTo(checked))

/** What a map of schemas is here: decoding one takes nothing but the value. */
type Fields = { readonly [name: string]: Schema.Codec<unknown, unknown> }

type InputField<S extends Schema.Constraint> = S["~encoded.optionality"] extends "optional"
  ? Schema.optionalKey<Schema.toEncoded<S>>
  : Schema.toEncoded<S>

export type InputFields<F extends Schema.Struct.Fields, Omitted extends PropertyKey> = {
  readonly [K in Exclude<keyof F, Omitted>]: InputField<F[K]>
}

/** What somebody may give of a specification: its fields but those that the platform sets by itself. */
export const inputOf = <F extends Fields, const Omitted extends keyof F = never>(
  spec: Schema.Struct<F>,
  omitted: ReadonlyArray<Omitted> = []
): Schema.Struct<InputFields<F, Omitted>> => given(spec, omitted, Schema.toEncoded)

/** The same, of which every value is checked at once, also by what only decoding the specification tells. */
export const checkedInputOf = <F extends Fields, const Omitted extends keyof F = never>(
  spec: Schema.Struct<F>,
  omitted: ReadonlyArray<Omitted> = []
): Schema.Struct<InputFields<F, Omitted>> =>
  given(spec, omitted, (field) => {
    const decode = Schema.decodeUnknownResult(field, { errors: "all" })
    return Schema.toEncoded(field).check(
      Schema.makeFilter((value: unknown) => {
        const decoded = decode(value)
        return Result.isFailure(decoded) ? decoded.failure.issue : undefined
      })
    )
  })

const given = <F extends Fields, Omitted extends keyof F>(
  spec: Schema.Struct<F>,
  omitted: ReadonlyArray<Omitted>,
  inputFor: (field: Schema.Codec<unknown, unknown>) => Schema.Constraint
): Schema.Struct<InputFields<F, Omitted>> => {
  const hidden = new Set<PropertyKey>(omitted)
  const fields = Object.entries(spec.fields).flatMap(([name, field]) => {
    if (hidden.has(name)) return []
    const input = inputFor(field)
    return [[name, input.ast.context?.isOptional === true ? Schema.optionalKey(input) : input] as const]
  })
  // The keys of an object are lost to the compiler where it is taken apart and put together.
  return Schema.Struct(Object.fromEntries(fields) as InputFields<F, Omitted>)
}
