/**
 * What clients say of themselves at the address that is their id (draft-ietf-oauth-client-id-metadata-document). Strangers
 * name these addresses, so they are read through `Outbound`, within bounds, and only from public addresses, unless the
 * service itself is on this machine alone. What was read is kept for a while, that it could not be read shortly.
 */
import * as Cache from "effect/Cache"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import { isLoopback } from "#src/address-ranges.ts"
import { AppConfig } from "#src/config.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { ClientUnknown } from "./errors.ts"

const ClientDocument = Schema.Struct({
  client_id: Schema.String,
  client_name: Schema.optionalKey(Schema.String),
  redirect_uris: Schema.Array(Schema.String).check(Schema.isMaxLength(50)),
  /** A client with a secret or a key of its own would have to prove it, and would be taken for proved. */
  token_endpoint_auth_method: Schema.optionalKey(Schema.Literal("none"))
})
const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(ClientDocument))

const longestDocument = 16 * 1024
const timeoutMs = 5_000
/** With the wait for a turn. */
const patience = "10 seconds"
const mostAtOnce = 16
const mostKept = 1_000

/** An https URL with a path, in the one way to write it, without a user, a fragment, or a part that climbs. */
export const isDocumentAddress = (id: string): boolean => {
  if (!/^https:\/\/[\x21-\x7e]+$/.test(id) || id.includes("#")) return false
  const url = URL.parse(id)
  return url !== null && url.href === id && url.pathname !== "/" && url.username === "" && url.password === ""
}

/** A service whose address is that of a loopback interface serves this machine alone: development. */
const isOwnHost = (hostname: string) =>
  hostname === "localhost" || isLoopback(hostname.replaceAll(/^\[|\]$/g, ""))

const unreadable = (id: string) =>
  new ClientUnknown({
    message: `What the program that sent you here says of itself at ${new URL(id).host} cannot be read, or is not valid.`
  })

export const clientDocuments = Effect.gen(function* () {
  const outbound = yield* Outbound
  const { publicUrl } = yield* AppConfig
  const publicOnly = !isOwnHost(new URL(publicUrl).hostname)
  const turns = yield* Semaphore.make(mostAtOnce)

  const read = Effect.fnUntraced(function* (id: string) {
    const { status, headers, body } = yield* outbound.get({
      url: id,
      headers: { accept: "application/json" },
      timeoutMs,
      publicOnly,
      // One more than may be, so that what was cut off is told from what ends there.
      maxAnswerBytes: longestDocument + 1
    })
    const isJson = /^application\/([a-z0-9.+-]+\+)?json\b/i.test(headers["content-type"] ?? "")
    if (status !== 200 || !isJson || Buffer.byteLength(body) > longestDocument) return yield* unreadable(id)
    const document = yield* decode(body)
    return document.client_id === id ? document : yield* unreadable(id)
  })

  const known = yield* Cache.makeWith(
    (id: string) =>
      Effect.catch(Effect.timeout(turns.withPermit(read(id)), patience), (error) =>
        Effect.andThen(
          Effect.logDebug(`the document of a client at ${id} was not taken`, error),
          unreadable(id)
        )
      ),
    {
      capacity: mostKept,
      timeToLive: (exit) => (Exit.isSuccess(exit) ? "10 minutes" : "10 seconds")
    }
  )
  return (id: string) => Cache.get(known, id)
})
