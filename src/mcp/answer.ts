/** Answers made for a model: short, and with the next step. */
import { isObject, type JsonObject } from "#src/api/definition/json-schema.ts"
import type { Answer } from "#src/api/dispatch.ts"
import type { Catalogue, Entry } from "./catalogue.ts"

export interface Answered {
  /** As in HTTP. */
  readonly status: number
  readonly content: JsonObject
}

export const isRefusal = ({ status }: Answered): boolean => status >= 400

/** Characters of a list; what is longer comes in parts. */
const longestList = 20_000
/** Characters of anything else; what is longer is not shown. */
const longestAnswer = 200_000

/** What was refused before it was asked of the API. */
export const refused = (status: number, code: string, detail: string): Answered => ({
  status,
  content: { status, error: { code, detail } }
})

export const answered = (
  catalogue: Catalogue,
  entry: Entry,
  order: { readonly operation: string; readonly offset?: number },
  { status, headers, text }: Answer
): Answered => {
  if (text === undefined)
    return refused(
      422,
      "stream",
      `${order.operation} answers with a stream like that, which a tool cannot read; leave out what asks to follow it`
    )
  const body = parsed(text)
  if (status >= 400) return { status, content: { status, ...problemOf(body, status, headers) } }
  const listed = listIn(body, order.offset ?? 0)
  if (listed === undefined && text.length > longestAnswer)
    return refused(
      413,
      "answer_too_long",
      `It was done, but its answer has ${text.length} characters; read it over HTTP: ${entry.method} ${entry.path}`
    )
  const next = [...(listed?.next ?? []), ...nextAfter(catalogue, entry, status, body)].join(" ")
  const shownOnce = entry.shownOnce.filter((name) => isObject(body) && typeof body[name] === "string")
  return {
    status,
    content: {
      status,
      ...(shownOnce.length === 0
        ? {}
        : {
            shownOnce,
            warning: `Nobody is shown ${shownOnce.join(", ")} again: have it stored where it is needed, and repeat it nowhere else`
          }),
      body: listed?.body ?? body,
      ...(headers["etag"] === undefined ? {} : { etag: headers["etag"] }),
      ...(next === "" ? {} : { next })
    }
  }
}

const parsed = (text: string): unknown => {
  if (text === "") return null
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** As much of a list as is shown at once, and how to see the rest. Undefined: the body is no list. */
const listIn = (
  body: unknown,
  offset: number
): { readonly body: unknown; readonly next: ReadonlyArray<string> } | undefined => {
  const items = Array.isArray(body)
    ? body
    : isObject(body) && Array.isArray(body["items"])
      ? body["items"]
      : undefined
  if (items === undefined) return undefined
  const shown = beginningOf(items.slice(offset))
  const seen = offset + shown.length
  const cursor = isObject(body) ? body["nextCursor"] : undefined
  return {
    body: isObject(body) ? { ...body, items: shown } : shown,
    next:
      seen < items.length
        ? [`These are ${shown.length} of ${items.length}; the same again with offset ${seen} shows more.`]
        : typeof cursor === "string"
          ? ["There are more: the same again with nextCursor as the query's cursor."]
          : []
  }
}

/** As many as have room, and never none. */
const beginningOf = (items: ReadonlyArray<unknown>): ReadonlyArray<unknown> => {
  let length = 0
  const over = items.findIndex((item) => {
    length += JSON.stringify(item).length
    return length > longestList
  })
  return over === -1 ? items : items.slice(0, Math.max(1, over))
}

const problemOf = (body: unknown, status: number, headers: Answer["headers"]): JsonObject => {
  const { code, detail, errors, addresses, requestId } = isObject(body) ? body : {}
  const next = afterRefusal(status, String(code), headers["retry-after"])
  return {
    error: {
      code: code ?? "error",
      detail: detail ?? "It failed",
      ...(errors === undefined ? {} : { errors }),
      ...(addresses === undefined ? {} : { addresses }),
      ...(status >= 500 ? { requestId } : {})
    },
    ...(next === undefined ? {} : { next })
  }
}

const afterRefusal = (status: number, code: string, retryAfter: string | undefined): string | undefined => {
  switch (status) {
    case 401:
      return "The credential does not hold any more; sign in again."
    case 402:
      return "An owner of the organization has to act on billing or the budget; tell the person."
    case 403:
      return "This credential may not do it; tell the person what is missing. Trying again does not help."
    case 404:
      return "Look for ids with resources.list; names of operations with the tool search."
    case 412:
      return "It changed in the meantime: read it again and decide anew."
    case 422:
      return "Correct what the errors point at; searching the operation's id shows its parameters and body."
    case 429:
      return `Wait ${retryAfter ?? "some"} seconds.`
    case 409:
      return code === "in_use" || code === "unreadable_specification"
        ? undefined
        : "Read what is there now before you try again."
    default:
      return status >= 500
        ? `It may or may not have been done: look before you try again${retryAfter === undefined ? "" : `, in ${retryAfter} seconds`}, or try again with the same idempotencyKey.`
        : undefined
  }
}

/** What follows a change: it is carried out after its answer. */
const nextAfter = (
  catalogue: Catalogue,
  { operation, parameters }: Entry,
  status: number,
  body: unknown
): ReadonlyArray<string> => {
  if (operation.risk === "read" || !isObject(body)) return []
  const { phase, status: state } = body
  const underWay = status === 202 || state === "provisioning" || (phase !== undefined && phase !== "ready")
  if (!underWay) return []
  const reading = catalogue.get(`${operation.id.split(".", 1)[0]}.get`)
  const own = reading?.parameters.findLast(
    ({ in: place, name }) => place === "path" && !parameters.some((known) => known.name === name)
  )
  const id = body["uid"] ?? body["id"]
  if (reading === undefined) return ["It is being carried out; resources.list shows how far it is."]
  return own === undefined || typeof id !== "string"
    ? [`It is being carried out; ${reading.operation.id} shows how far it is.`]
    : [`It is being carried out; ${reading.operation.id} with ${own.name} "${id}" shows how far it is.`]
}
