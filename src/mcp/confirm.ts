/**
 * Asking the person before what cannot be taken back is done: by the client where it can ask, else by having the model
 * repeat the order with the `confirm` that its first call was told. Either is the client's word. What an agent may do is
 * what it was granted.
 */
import { hash } from "node:crypto"
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  type InputRequiredResult,
  inputRequired,
  type ServerContext
} from "@modelcontextprotocol/server"
import * as Result from "effect/Result"
import { isObject } from "#src/api/definition/json-schema.ts"
import { parseSource } from "#src/manifest/source.ts"
import { type Answered, refused } from "./answer.ts"
import type { Caller } from "./caller.ts"
import type { Entry } from "./catalogue.ts"
import type { Order } from "./execute.ts"
import { needsConfirmation } from "./search.ts"

/** Undefined: it may be done now. */
export const confirmation = (
  entry: Entry,
  order: Order,
  caller: Caller,
  { mcpReq: { envelope, inputResponses } }: ServerContext
): { readonly ask: InputRequiredResult } | { readonly refused: Answered } | undefined => {
  if (!needsConfirmation(entry.operation)) return undefined
  const key = keyOf(order, caller)
  if (!canAsk(envelope)) {
    if (order.confirm === key) return undefined
    const next = `Ask the person, in these words: ${questionOf(entry, order)} After a yes repeat exactly this call with confirm "${key}"`
    return { refused: refused(409, "confirmation_required", next) }
  }
  if (acceptedContent(inputResponses, key)?.["confirm"] === true) return undefined
  if (inputResponses !== undefined && Object.hasOwn(inputResponses, key))
    return {
      refused: refused(409, "declined", "The person said no. Do not try it again unless they ask for it")
    }
  const requestedSchema = {
    type: "object" as const,
    properties: { confirm: { type: "boolean" as const, title: "Yes, do it" } },
    required: ["confirm"]
  }
  return {
    ask: inputRequired({
      inputRequests: { [key]: inputRequired.elicit({ message: questionOf(entry, order), requestedSchema }) }
    })
  }
}

/** Each request of the revisions that can ask says what its client can. One that names no mode of asking has forms. */
const canAsk = (envelope: unknown): boolean => {
  const capabilities = isObject(envelope) ? envelope[CLIENT_CAPABILITIES_META_KEY] : undefined
  const elicitation = isObject(capabilities) ? capabilities["elicitation"] : undefined
  return isObject(elicitation) && ("form" in elicitation || Object.keys(elicitation).length === 0)
}

/** Of exactly this order, in whichever order its fields stand: a yes to one is no yes to another. */
const keyOf = ({ operation, path, query, body, ifMatch }: Order, { organization }: Caller): string => {
  const order = JSON.stringify([organization.id, operation, path, query, body, ifMatch], sorted)
  return `confirm-${hash("sha256", order, "hex").slice(0, 32)}`
}

const sorted = (_: string, value: unknown): unknown =>
  isObject(value)
    ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
    : value

/** Values that a question shows, and characters of each. */
const mostShown = 30
const longestShown = 200

/** All that decides what happens. Values are the model's: they stand in quotes, which nothing in them can end. */
const questionOf = ({ operation, summary }: Entry, { path, query, body }: Order): string => {
  const given = [...entriesOf(path), ...entriesOf(query), ...shownOf(body)]
  const shown = given.slice(0, mostShown).map(([name, value]) => `${quoted(name)}: ${quoted(value)}`)
  const more = given.length > mostShown ? [`and ${given.length - mostShown} more`] : []
  const what = [operation.id, ...shown, ...more].join(", ")
  return `${summary} (${what}). This is ${operation.risk}: it may not be possible to undo. Do it?`
}

const entriesOf = (named: Order["path"]) => Object.entries(named ?? {})

/** The fields of a body, those first that are shown whole. */
const shownOf = (body: Order["body"]): ReadonlyArray<readonly [string, unknown]> => {
  const read = typeof body === "string" ? parseSource(body) : undefined
  const value = read !== undefined && Result.isSuccess(read) ? read.success.value : body
  if (value === undefined) return []
  if (!isObject(value)) return [["body", value]]
  const fields = Object.entries(value)
  const isPlain = ([, one]: readonly [string, unknown]) => typeof one !== "object"
  return [...fields.filter(isPlain), ...fields.filter((field) => !isPlain(field))]
}

/** What no reader would see, or would see elsewhere than where it stands. */
const invisible = /[\p{C}\p{Zl}\p{Zp}]/gu

const quoted = (value: unknown): string =>
  (typeof value === "string" ? JSON.stringify(cut(value)) : cut(JSON.stringify(value))).replaceAll(
    invisible,
    (sign) => `\\u{${sign.codePointAt(0)?.toString(16)}}`
  )

const cut = (text: string): string =>
  text.length > longestShown ? `${text.slice(0, longestShown)}… (${text.length} characters)` : text
