/**
 * Specifications in full: every default filled in, as the kind's schema of this release has it. What is compared has
 * to go through here, also what was stored: an earlier release may have stored it before a field with a default came.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { isTooDeep } from "./json-depth.ts"
import type { Kind } from "./kind.ts"

/** Its failure names all faults, not only the first. */
export const completeSpec = (kind: Kind, spec: unknown): Result.Result<unknown, Schema.SchemaError> =>
  decoderOf(kind)(spec)

/** Whether what is stored is a specification of its kind still. */
export const isReadableSpec = (kind: Kind, spec: unknown): boolean =>
  !isTooDeep(spec) && Result.isSuccess(completeSpec(kind, spec))

type Decoder = (spec: unknown) => Result.Result<unknown, Schema.SchemaError>
const decoders = new WeakMap<Kind, Decoder>()
/** Made once for each kind: compiling a schema costs more than using it. */
const decoderOf = (kind: Kind): Decoder => {
  const known = decoders.get(kind)
  if (known !== undefined) return known
  const decode = Schema.decodeUnknownResult(kind.spec, { errors: "all" })
  const decoder: Decoder = (spec) => decode(spec)
  decoders.set(kind, decoder)
  return decoder
}
