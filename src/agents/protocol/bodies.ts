/** What programs send to the authorization server, read within bounds. */
import * as ByteSize from "effect/ByteSize"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as Schema from "effect/Schema"
import { TokenRefused } from "../errors.ts"

const longestBody = ByteSize.bytes(32 * 1024)

const invalid = (message: string) => new TokenRefused({ error: "invalid_request", message })

const textOf = Effect.fnUntraced(function* (mediaType: string) {
  const request = yield* HttpServerRequest.HttpServerRequest
  if (request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase() !== mediaType) {
    return yield* invalid(`Send the request as ${mediaType}`)
  }
  return yield* request.text.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, longestBody),
    Effect.mapError(() => invalid("The request cannot be read, or is too long"))
  )
})

/** Parameters that may come several times (RFC 8707, section 2). */
const severalTimes: ReadonlySet<string> = new Set(["resource"])

export interface Form {
  /** Undefined: it is absent or empty, which is the same (RFC 6749, section 3.1). */
  readonly get: (name: string) => string | undefined
  readonly need: (name: string) => Effect.Effect<string, TokenRefused>
  readonly all: (name: string) => ReadonlyArray<string>
}

/** A form with each parameter once, in printable ASCII (RFC 6749, appendix A). */
export const form = Effect.gen(function* () {
  const fields = new URLSearchParams(yield* textOf("application/x-www-form-urlencoded"))
  for (const name of new Set(fields.keys())) {
    const values = fields.getAll(name)
    if (values.length > 1 && !severalTimes.has(name)) return yield* invalid("A parameter is given twice")
    if (!values.every((value) => /^[\x20-\x7e]*$/.test(value))) {
      return yield* invalid("Parameters are printable ASCII")
    }
  }
  const get = (name: string) => fields.get(name) || undefined
  const read: Form = {
    get,
    need: (name) =>
      Effect.suspend(() => {
        const value = get(name)
        return value === undefined ? invalid(`${name} is required`) : Effect.succeed(value)
      }),
    all: (name) => fields.getAll(name).filter((value) => value !== "")
  }
  return read
})

/** Metadata of a client (RFC 7591, section 2). What else it holds is not taken over, and the answer says what was. */
const ClientMetadata = Schema.fromJsonString(
  Schema.Struct({
    client_name: Schema.optionalKey(Schema.String),
    redirect_uris: Schema.Array(Schema.String)
  })
)
const decodeMetadata = Schema.decodeUnknownEffect(ClientMetadata)

export const clientMetadata = Effect.flatMap(textOf("application/json"), (text) =>
  Effect.mapError(
    decodeMetadata(text),
    () =>
      new TokenRefused({
        error: "invalid_client_metadata",
        message: "Send a JSON object with redirect_uris, a list of strings, and client_name"
      })
  )
)
