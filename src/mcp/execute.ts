/** The tool `execute`: runs one operation of the API by its id. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Dispatch, Request } from "#src/api/dispatch.ts"
import { type Answered, answered, refused } from "./answer.ts"
import type { Caller } from "./caller.ts"
import type { Catalogue, Entry } from "./catalogue.ts"

const Scalar = Schema.Union([Schema.String, Schema.Finite, Schema.Boolean])

export const Order = Schema.Struct({
  operation: Schema.String.check(Schema.isMaxLength(100)).annotateKey({
    description: "Id of the operation, as `search` tells it, such as caches.create"
  }),
  path: Schema.optionalKey(
    Schema.Record(Schema.String, Scalar).annotate({
      description: "Values of the parameters of its path. The organization follows from your credential"
    })
  ),
  query: Schema.optionalKey(
    Schema.Record(Schema.String, Scalar).annotate({ description: "Parameters of its query" })
  ),
  body: Schema.optionalKey(
    Schema.Json.annotate({ description: "Its body; a manifest may also be YAML, as a string" })
  ),
  confirm: Schema.optionalKey(
    Schema.String.annotate({
      description:
        "For what cannot be taken back: what the refusal of the first call says, after the person said yes to exactly this"
    })
  ),
  ifMatch: Schema.optionalKey(
    Schema.String.annotate({
      description: "The `etag` of an earlier answer: change it only if it is still like that"
    })
  ),
  idempotencyKey: Schema.optionalKey(
    Schema.String.annotate({
      description: "Any text, the same when you try again: then the operation takes effect once"
    })
  ),
  offset: Schema.optionalKey(
    Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)).annotate({
      description: "Items of a long list to leave out, as `next` of the answer before says"
    })
  )
})
export type Order = typeof Order.Type

/** Carries an order out and answers for a model. Asking the person is done before. */
export const execute =
  (catalogue: Catalogue, dispatch: Dispatch) =>
  (order: Order, caller: Caller): Effect.Effect<Answered> => {
    const entry = catalogue.get(order.operation)
    if (entry === undefined)
      return Effect.succeed(
        refused(404, "not_found", `There is no operation ${order.operation}; the tool search finds their ids`)
      )
    const request = requestOf(entry, order, caller)
    return "refused" in request
      ? Effect.succeed(request.refused)
      : Effect.map(dispatch(request), (answer) => answered(catalogue, entry, order, answer))
  }

/** What no segment of a path may be: it would name another path (RFC 3986, section 3.3). */
const dots: ReadonlySet<string> = new Set(["", ".", ".."])
/** Lone surrogates have no UTF-8 that could be encoded. */
const isSegment = (value: string): boolean => !dots.has(value) && value.isWellFormed()

const requestOf = (entry: Entry, order: Order, caller: Caller): Request | { readonly refused: Answered } => {
  const invalid = (detail: string) => ({ refused: refused(422, "invalid", detail) })
  const given = { ...order.path }
  const { organization } = caller
  const { orgId } = given
  if (orgId !== undefined && orgId !== organization.id && orgId !== organization.slug)
    return {
      refused: refused(
        404,
        "not_found",
        `This credential is of the organization ${organization.slug}; no other one can be named`
      )
    }
  delete given["orgId"]
  const names = entry.parameters.filter((one) => one.in === "path").map(({ name }) => name)
  const unknown = Object.keys(given).filter((name) => !names.includes(name))
  if (unknown.length > 0)
    return invalid(
      `The path of ${order.operation} has ${names.length === 0 ? "no parameters" : names.join(", ")}, not ${unknown.join(", ")}`
    )
  const bad = names.filter((name) => !isSegment(String(given[name] ?? "")))
  if (bad.length > 0) return invalid(`The path of ${order.operation} needs ${bad.join(", ")}`)
  const path = entry.path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(name === "orgId" ? organization.id : String(given[name]))
  )
  const query = new URLSearchParams(
    Object.entries(order.query ?? {}).map(([name, value]) => [name, String(value)])
  )
  const body = bodyOf(entry, order)
  if (body !== undefined && Buffer.byteLength(body.text) > entry.operation.longestBody)
    return { refused: refused(413, "payload_too_large", "The body is larger than this operation takes") }
  return {
    method: entry.method,
    url: query.size === 0 ? path : `${path}?${query}`,
    headers: {
      ...(order.ifMatch === undefined ? {} : { "if-match": order.ifMatch }),
      ...(order.idempotencyKey === undefined ? {} : { "idempotency-key": order.idempotencyKey })
    },
    body
  }
}

/** Some models write the body down as text. The API reads that by itself, with all it refuses, such as keys that stand twice. */
const bodyOf = (entry: Entry, { body }: Order): Request["body"] => {
  if (body === undefined) return undefined
  if (typeof body !== "string" || entry.body === undefined || entry.body.schema["type"] === "string")
    return { text: JSON.stringify(body), type: "application/json" }
  return { text: body, type: entry.body.yaml ? "application/yaml" : "application/json" }
}
