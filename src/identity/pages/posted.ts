/** Reading a form that was posted: from our own pages only, of bounded size, as plain text fields. */
import * as ByteSize from "effect/ByteSize"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as UrlParams from "effect/http/UrlParams"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { sameOrigin } from "#src/access/same-origin.ts"

/** The form cannot be taken. */
export class FormRefused extends Schema.TaggedError<FormRefused>()("FormRefused", {
  status: Schema.Int,
  message: Schema.String
}) {}

export interface Posted {
  /** The field as it came; empty when it did not. */
  readonly text: (name: string) => string
  /** What was sent under one name, such as the ticked ones of several boxes. */
  readonly all: (name: string) => ReadonlyArray<string>
  readonly secret: (name: string) => Redacted.Redacted
}

const longestForm = ByteSize.bytes(16 * 1024)

export const posted = Effect.gen(function* () {
  const request = yield* HttpServerRequest.HttpServerRequest
  if (!sameOrigin(request)) {
    return yield* new FormRefused({ status: 403, message: "This form must be sent from our own pages." })
  }
  if (request.headers["content-type"]?.split(";", 1)[0]?.trim() !== "application/x-www-form-urlencoded") {
    return yield* new FormRefused({ status: 415, message: "This form cannot be read." })
  }
  const fields = yield* request.urlParamsBody.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, longestForm),
    Effect.mapError(() => new FormRefused({ status: 400, message: "This form cannot be read." }))
  )
  // Neither can be stored, and nobody types them.
  const storable = (value: string) => value.replaceAll("\0", "").toWellFormed()
  const text = (name: string): string =>
    storable(Option.getOrElse(UrlParams.getFirst(fields, name), () => ""))
  const form: Posted = {
    text,
    all: (name) => UrlParams.getAll(fields, name).map(storable),
    secret: (name) => Redacted.make(text(name))
  }
  return form
})
