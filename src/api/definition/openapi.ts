/**
 * What the framework's generator cannot say about the API, added to the document that it makes (OpenAPI 3.1): header
 * fields, bodies that may be absent, bodies whose text is read by us, and one definition for what many operations
 * share. It names no operation: all that differs between them comes from their definitions.
 */
import type * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import type * as OpenApi from "effect/http-api/OpenApi"
import * as Schema from "effect/Schema"
import { isObject, type JsonObject, plainSchemas, withoutDefaults } from "./json-schema.ts"

/** Part of the document that is no operation's: entries of its paths, and what they refer to. */
export interface Described {
  readonly paths: JsonObject
  readonly schemas: JsonObject
  readonly securitySchemes: JsonObject
}

type Groups = ReadonlyArray<{ readonly endpoints: object }>

/** What is used of the document. */
export interface Generated {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApi.OpenAPISpecOperation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonObject>> }
}

const text = (description: string, more: JsonObject = {}) => ({
  description,
  schema: { type: "string", ...more }
})
const headers: JsonObject = {
  ETag: text("Revision of what the body shows, for `If-Match`"),
  "Idempotency-Replayed": text("The answer is the one that was given to the first request with this key", {
    enum: ["true"]
  }),
  RateLimit: text("What is left of the limit, and the seconds until there is more", {
    examples: ['"credential";r=599;t=0']
  }),
  "RateLimit-Policy": text("The limit: requests and the seconds that they are counted in", {
    examples: ['"credential";q=600;w=60']
  }),
  "Retry-After": { description: "Seconds to wait before the next try", schema: { type: "integer" } },
  "WWW-Authenticate": text("The scheme of the credentials that are taken"),
  "X-Request-Id": text("Names the request in the log, in problems and in the audit log")
}
const header = (...names: ReadonlyArray<string>) =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))

/** Header fields that any problem may have, for all operations have one definition of each; and those of some. */
const anyProblem = ["X-Request-Id", "RateLimit", "RateLimit-Policy", "Idempotency-Replayed"]
const someProblems: Readonly<Record<string, ReadonlyArray<string>>> = {
  401: ["WWW-Authenticate"],
  403: ["WWW-Authenticate"],
  409: ["Retry-After"],
  429: ["Retry-After"],
  503: ["Retry-After"]
}

const requestId: OpenApi.OpenAPISpecParameter = {
  name: "X-Request-Id",
  in: "header",
  required: false,
  schema: { type: "string", description: "A name for the request; one is made where there is none" }
}

const ifNoneMatch: OpenApi.OpenAPISpecParameter = {
  name: "If-None-Match",
  in: "header",
  required: false,
  schema: { type: "string", description: "ETag of what the caller has (RFC 9110)" }
}
const notModified: JsonObject = {
  description: "What the caller has is still so",
  headers: header("ETag", "X-Request-Id", "RateLimit", "RateLimit-Policy")
}

const securitySchemes = {
  key: {
    type: "http",
    scheme: "bearer",
    description: "Organization API key: svc_ and 40 hex digits"
  },
  session: { type: "apiKey", in: "cookie", name: "svc_session", description: "Signed-in session" }
}

/** Scopes are ids of operations: those that take a grant. */
const grantScheme = (paths: Paths) => ({
  type: "oauth2",
  description: "Access token of a grant to an agent: svca_ and 64 hex digits",
  flows: {
    authorizationCode: {
      authorizationUrl: "/agent/authorize",
      tokenUrl: "/oauth/token",
      refreshUrl: "/oauth/token",
      scopes: Object.fromEntries(
        Object.values(paths)
          .flatMap((item) => Object.values(item))
          .flatMap(({ operationId, summary, security }) =>
            Array.isArray(security) && security.some((one) => isObject(one) && one["grant"] !== undefined)
              ? [[String(operationId), String(summary)]]
              : []
          )
      )
    }
  }
})

type Operation = JsonObject & { readonly parameters: ReadonlyArray<JsonObject> }
/** By path and method. */
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>

export const completed = (
  document: Generated,
  groups: Groups,
  more: ReadonlyArray<Described>
): JsonObject => {
  const besides = (part: keyof Described) => Object.assign({}, ...more.map((one) => one[part]))
  const endpoints = endpointsOf(groups)
  const described = mapEntries(document.paths, (item, path) =>
    mapEntries(item, (operation, method) =>
      completeOperation(operation, method, endpoints.get(`${method} ${path}`))
    )
  )
  const { paths, parameters } = sharing(described)
  const { schemas, responses } = problemsOnce(document)
  const whole = {
    ...document,
    paths: { ...paths, ...besides("paths") },
    components: {
      schemas: { ...schemas, ...besides("schemas") },
      responses: { ...responses, NotModified: notModified },
      parameters,
      headers,
      securitySchemes: {
        ...securitySchemes,
        grant: grantScheme(paths),
        ...besides("securitySchemes")
      }
    }
  }
  return plainSchemas(withoutDefaults(whole))
}

const completeOperation = (
  { parameters, requestBody, responses, ...rest }: OpenApi.OpenAPISpecOperation,
  method: string,
  endpoint: HttpApiEndpoint.Top | undefined
): Operation => {
  const limited = rest.security.length > 0
  const replays = parameters.some(({ name }) => name === "idempotency-key")
  const usual = [
    "X-Request-Id",
    ...(limited ? ["RateLimit", "RateLimit-Policy"] : []),
    ...(replays ? ["Idempotency-Replayed"] : [])
  ]
  const cached = method === "get" && responses[200]?.headers?.["etag"] !== undefined
  const more = [...(cached ? [ifNoneMatch] : []), requestId]
  // A body is looked at before it is known whether the operation reads it.
  const unread = ["post", "put", "patch"].includes(method) ? ["413", "415"] : []
  return {
    ...rest,
    parameters: [...withTypes(parameters, endpoint), ...more].map(describedAside),
    ...(requestBody === undefined
      ? {}
      : { requestBody: { content: mediaTypes(requestBody.content), required: !takesNoBody(endpoint) } }),
    responses: {
      ...mapEntries(responses, (response, status) =>
        isProblem(status)
          ? problemAt(status)
          : {
              ...response,
              headers: header(...Object.keys(response.headers ?? {}).map(fieldName), ...usual),
              ...(response.content === undefined ? {} : { content: mediaTypes(response.content) })
            }
      ),
      ...(cached ? { 304: { $ref: "#/components/responses/NotModified" } } : {}),
      ...Object.fromEntries(unread.map((status) => [status, problemAt(status)]))
    }
  }
}

const isProblem = (status: string) => Number(status) >= 400
const problemAt = (status: string) => ({ $ref: `#/components/responses/Problem${status}` })

/** The generator copies the schema of problems for each status, and their answers for each operation. */
const problemsOnce = ({ components, paths }: Generated) => {
  const responses: Record<string, JsonObject> = {}
  for (const operation of Object.values(paths).flatMap((item) => Object.values(item))) {
    for (const [status, { description }] of Object.entries(operation.responses)) {
      if (isProblem(status)) responses[`Problem${status}`] = problemResponse(status, description)
    }
  }
  const schemas = Object.entries(components.schemas)
  const copies = new Map(schemas.filter(([name]) => Object.hasOwn(responses, name)))
  const [problem] = copies.values()
  return {
    responses,
    schemas: {
      ...Object.fromEntries(schemas.filter(([name]) => !copies.has(name))),
      Problem: { ...problem, description: "The body of every error (RFC 9457)" }
    }
  }
}

const problemResponse = (status: string, description: string): JsonObject => ({
  description,
  headers: header(...anyProblem, ...(someProblems[status] ?? [])),
  content: { "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" } } }
})

/** By method and path, as the document has them. */
const endpointsOf = (groups: Groups): ReadonlyMap<string, HttpApiEndpoint.Top> =>
  new Map(
    groups
      .flatMap(({ endpoints }) => Object.values<HttpApiEndpoint.Top>({ ...endpoints }))
      .map((endpoint) => [
        `${endpoint.method.toLowerCase()} ${endpoint.path.replaceAll(/:([A-Za-z]+)/g, "{$1}")}`,
        endpoint
      ])
  )

/** The generator says that every body is required. */
const takesNoBody = (endpoint: HttpApiEndpoint.Top | undefined): boolean =>
  [...(endpoint?.payload.values() ?? [])].some(({ schemas }) =>
    schemas.some(({ ast }) => HttpApiSchema.isNoContent(ast))
  )

/** A query is text, and the generator says that of each of its parameters; what they mean are numbers and the like. */
const withTypes = (
  parameters: ReadonlyArray<OpenApi.OpenAPISpecParameter>,
  endpoint: HttpApiEndpoint.Top | undefined
): ReadonlyArray<OpenApi.OpenAPISpecParameter> => {
  if (endpoint?.query === undefined) return parameters
  const { schema } = Schema.toJsonSchemaDocument(Schema.toType(endpoint.query))
  const types = isObject(schema["properties"]) ? schema["properties"] : {}
  return parameters.map((parameter) => {
    const type = types[parameter.name]
    return parameter.in === "query" && isObject(type) && type["$ref"] === undefined
      ? { ...parameter, schema: type }
      : parameter
  })
}

/**
 * Bodies that an operation reads as text, to name lines and columns, are documented as what the text holds. How the
 * framework's own client reads a stream is no matter of others.
 */
const mediaTypes = (content: object): JsonObject =>
  mapEntries(content as Record<string, JsonObject>, ({ schema, "x-effect-stream": _, ...rest }) => ({
    ...rest,
    schema: isObject(schema) && isObject(schema["contentSchema"]) ? schema["contentSchema"] : schema
  }))

/** As it is written by custom, such as `If-Match`: generated clients show the name as it is here. */
const fieldName = (name: string): string =>
  name.toLowerCase() === "etag" ? "ETag" : name.replaceAll(/(?<=^|-)[a-z]/g, (letter) => letter.toUpperCase())

/** The description belongs to the parameter, where readers look for it. */
const describedAside = ({ name, schema, ...rest }: OpenApi.OpenAPISpecParameter): JsonObject => {
  const { description, ...type } = schema as JsonObject
  return {
    name: rest.in === "header" ? fieldName(name) : name,
    ...rest,
    ...(description === undefined ? {} : { description }),
    schema: type
  }
}

/** Parameters that come again are defined once; of several with one name, the first. */
const sharing = (paths: Paths): { readonly paths: Paths; readonly parameters: JsonObject } => {
  const first = new Map<string, { readonly parameter: JsonObject; readonly text: string; times: number }>()
  for (const item of Object.values(paths)) {
    for (const parameter of Object.values(item).flatMap(({ parameters }) => parameters)) {
      const [name, text] = [String(parameter["name"]), JSON.stringify(parameter)]
      const known = first.get(name)
      if (known === undefined) first.set(name, { parameter, text, times: 1 })
      else if (known.text === text) known.times++
    }
  }
  const often = new Map([...first].filter(([, { times }]) => times > 1))
  const placed = (parameter: JsonObject): JsonObject => {
    const name = String(parameter["name"])
    return often.get(name)?.text === JSON.stringify(parameter)
      ? { $ref: `#/components/parameters/${name}` }
      : parameter
  }
  return {
    paths: mapEntries(paths, (item) =>
      mapEntries(item, (operation) => ({ ...operation, parameters: operation.parameters.map(placed) }))
    ),
    parameters: mapEntries(Object.fromEntries(often), ({ parameter }) => parameter)
  }
}

const mapEntries = <A, B>(
  all: Readonly<Record<string, A>>,
  to: (value: A, key: string) => B
): Readonly<Record<string, B>> =>
  Object.fromEntries(Object.entries(all).map(([key, value]) => [key, to(value, key)]))
