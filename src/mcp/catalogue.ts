/**
 * The operations that an agent can be told of, each with its documentation: made from the definitions of the API, like
 * the API document, so that there is no second list.
 */
import * as Context from "effect/Context"
import * as OpenApi from "effect/http-api/OpenApi"
import { Api } from "#src/api/definition/api.ts"
import { isObject, type JsonObject } from "#src/api/definition/json-schema.ts"
import { Operation } from "#src/api/definition/operation.ts"

export interface Parameter {
  readonly name: string
  readonly in: "path" | "query"
  readonly required: boolean
  readonly description?: string
  readonly schema: JsonObject
}

export interface Entry {
  readonly operation: Operation
  readonly method: string
  /** With parameters in braces: `/v1/orgs/{orgId}/projects`. */
  readonly path: string
  readonly summary: string
  /** What its group of operations is about. */
  readonly about: string
  /** All but `orgId`, which follows from the credential. */
  readonly parameters: ReadonlyArray<Parameter>
  /** The schema stands for itself: nothing in it refers to the API document. */
  readonly body:
    | { readonly schema: JsonObject; readonly required: boolean; readonly yaml: boolean }
    | undefined
  /** Whether `If-Match` and `Idempotency-Key` mean something to it. */
  readonly ifMatch: boolean
  readonly idempotencyKey: boolean
  /** Fields of the answer that hold a secret which no later answer shows. */
  readonly shownOnce: ReadonlyArray<string>
}

export type Catalogue = ReadonlyMap<string, Entry>

/**
 * By operation id. Operations that take no credential are about signing in and about the service, and one that only
 * streams has no answer to give to a tool: neither is here.
 */
export const makeCatalogue = (): Catalogue => {
  const document: unknown = OpenApi.fromApi(Api)
  const resolve = resolverOf(document)
  const entries = new Map<string, Entry>()
  for (const group of Object.values(Api.groups)) {
    const about = Context.getOrUndefined(group.annotations, OpenApi.Description) ?? ""
    for (const endpoint of Object.values(group.endpoints)) {
      const operation = Context.get(endpoint.annotations, Operation)
      if (operation === undefined || operation.credentials.length === 0) continue
      const path = endpoint.path.replaceAll(/:([A-Za-z]+)/g, "{$1}")
      const described = at(document, "paths", path, endpoint.method.toLowerCase())
      if (!answersJson(described)) continue
      entries.set(
        operation.id,
        entryOf({ operation, about, path, method: endpoint.method }, described, resolve)
      )
    }
  }
  return entries
}

type Resolve = (value: unknown) => unknown

const entryOf = (
  known: Pick<Entry, "operation" | "about" | "path" | "method">,
  described: JsonObject,
  resolve: Resolve
): Entry => {
  const all = listOf(resolve(described["parameters"])).filter(isObject)
  const names = new Set(all.map(({ name }) => String(name).toLowerCase()))
  return {
    ...known,
    summary: String(described["summary"] ?? ""),
    parameters: all.flatMap((one) => parameterOf(one)),
    body: bodyOf(described["requestBody"], resolve),
    ifMatch: names.has("if-match"),
    idempotencyKey: names.has("idempotency-key"),
    shownOnce: shownOnceIn(described, resolve)
  }
}

const parameterOf = (one: JsonObject): ReadonlyArray<Parameter> => {
  const place = one["in"]
  if ((place !== "path" && place !== "query") || one["name"] === "orgId") return []
  const { description } = one
  return [
    {
      name: String(one["name"]),
      in: place,
      required: one["required"] === true,
      ...(typeof description === "string" ? { description } : {}),
      schema: isObject(one["schema"]) ? one["schema"] : {}
    }
  ]
}

const bodyOf = (requestBody: unknown, resolve: Resolve): Entry["body"] => {
  const content = at(requestBody, "content")
  const schema = resolve(at(content, "application/json")["schema"])
  return isObject(schema)
    ? { schema, required: at(requestBody)["required"] === true, yaml: "application/yaml" in content }
    : undefined
}

const successful = (described: JsonObject): ReadonlyArray<JsonObject> =>
  Object.entries(at(described, "responses")).flatMap(([status, response]) =>
    status.startsWith("2") ? [at(response, "content")] : []
  )

/** Answers that come piece by piece, as long as something goes on. */
const streams = ["text/event-stream", "application/x-ndjson"]

const answersJson = (described: JsonObject): boolean =>
  successful(described).every(
    (content) => !streams.some((type) => type in content) || "application/json" in content
  )

/** The definitions of such fields say so in their description. */
const saysShownOnce = /shown this once/i

const shownOnceIn = (described: JsonObject, resolve: Resolve): ReadonlyArray<string> => {
  const found = new Set<string>()
  const visit = (schema: unknown): void => {
    if (!isObject(schema)) return
    for (const [name, field] of Object.entries(at(schema, "properties"))) {
      if (isObject(field) && saysShownOnce.test(String(field["description"] ?? ""))) found.add(name)
      else visit(field)
    }
  }
  for (const content of successful(described)) visit(resolve(at(content, "application/json")["schema"]))
  return [...found]
}

/** The object at `path`, or an empty one. */
const at = (value: unknown, ...path: ReadonlyArray<string>): JsonObject => {
  const found = path.reduce<unknown>((inner, key) => (isObject(inner) ? inner[key] : undefined), value)
  return isObject(found) ? found : {}
}

const listOf = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

/** Puts in place of each reference what it refers to. What refers to itself stays a schema of anything. */
const resolverOf = (document: unknown): Resolve => {
  const inside = (value: unknown, within: ReadonlyArray<string>): unknown => {
    if (Array.isArray(value)) return value.map((one) => inside(one, within))
    if (!isObject(value)) return value
    const { $ref, ...rest } = value
    const beside = Object.fromEntries(Object.entries(rest).map(([key, one]) => [key, inside(one, within)]))
    if (typeof $ref !== "string") return beside
    if (within.includes($ref)) return beside
    const target = inside(at(document, ...$ref.slice(2).split("/")), [...within, $ref])
    return isObject(target) ? { ...target, ...beside } : beside
  }
  return (value) => inside(value, [])
}
