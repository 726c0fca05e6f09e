/**
 * Asking the person before what cannot be taken back is done: by the client where it can ask, else by having the model
 * repeat the order with `confirm`. Either is the client's word. What an agent may do is what it was granted.
 */
import { hash } from "node:crypto"
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  type InputRequiredResult,
  inputRequired,
  type ServerContext
} from "@modelcontextprotocol/server"
import { isObject } from "#src/api/definition/json-schema.ts"
import { type Answered, refused } from "./answer.ts"
import type { Entry } from "./catalogue.ts"
import type { Order } from "./execute.ts"
import { needsConfirmation } from "./search.ts"

/** Undefined: it may be done now. */
export const confirmation = (
  entry: Entry,
  order: Order,
  { mcpReq: { envelope, inputResponses } }: ServerContext
): { readonly ask: InputRequiredResult } | { readonly refused: Answered } | undefined => {
  if (!needsConfirmation(entry.operation)) return undefined
  const question = questionOf(entry, order)
  if (!canAsk(envelope)) {
    if (order.confirm === order.operation) return undefined
    const next = `Ask the person, in these words: "${question}" After a yes repeat this call with confirm "${order.operation}"`
    return { refused: refused(409, "confirmation_required", next) }
  }
  const key = keyOf(order)
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
      inputRequests: { [key]: inputRequired.elicit({ message: question, requestedSchema }) }
    })
  }
}

/** Each request of the revisions that can ask says what its client can. One that names no mode of asking has forms. */
const canAsk = (envelope: unknown): boolean => {
  const capabilities = isObject(envelope) ? envelope[CLIENT_CAPABILITIES_META_KEY] : undefined
  const elicitation = isObject(capabilities) ? capabilities["elicitation"] : undefined
  return isObject(elicitation) && ("form" in elicitation || Object.keys(elicitation).length === 0)
}

/** Of exactly this order: a yes to one is no yes to another. */
const keyOf = ({ operation, path, query, body }: Order): string =>
  `confirm-${hash("sha256", JSON.stringify([operation, path, query, body]), "hex").slice(0, 32)}`

const questionOf = ({ operation, summary }: Entry, { path, query }: Order): string => {
  const where = Object.entries({ ...path, ...query }).map(([name, value]) => `${name} ${value}`)
  return `${summary} (${[operation.id, ...where].join(", ")}). This is ${operation.risk}: it may not be possible to undo. Do it?`
}
