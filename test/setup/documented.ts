/**
 * Whether what goes over the wire is what the specification says. The control plane of the tests asks this of every
 * answer, so each test of an operation is a test of its documentation too.
 */
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js"
import formats from "ajv-formats"
import * as OpenApi from "effect/http-api/OpenApi"
import { Api } from "#src/api/definition/api.ts"

export interface Exchange {
  readonly method: string
  /** With the query. */
  readonly path: string
  /** The request's body, if it is JSON. */
  readonly sent: string | undefined
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

interface Content {
  readonly content?: Readonly<Record<string, unknown>>
}
interface Response extends Content {
  readonly headers?: Readonly<Record<string, unknown>>
}
interface Described {
  readonly requestBody?: Content
  readonly responses: Readonly<Record<string, Response | { readonly $ref: string }>>
}
interface Specification {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>
  readonly components: {
    readonly headers: Readonly<Record<string, unknown>>
    readonly responses: Readonly<Record<string, Response>>
  }
}

/** Throws when an operation of the specification answered what the specification does not say of it. */
export const asDocumented = ({ method, path, sent, status, headers, text }: Exchange): void => {
  const pathname = path.split("?", 1)[0] ?? ""
  const found = specified.operations.find(
    (one) => one.method === method.toLowerCase() && one.pattern.test(pathname)
  )
  if (found === undefined) return
  const { requestBody, responses } = found.described
  const missing = (what: string) =>
    new Error(`${method} ${pathname} answered ${status}: the specification does not have ${what}: ${text}`)

  const listed = responses[status]
  if (listed === undefined) throw missing("this status")
  const pointer =
    "$ref" in listed ? listed.$ref.slice(2).split("/") : [...found.pointer, "responses", `${status}`]
  const response = "$ref" in listed ? (specified.responses[pointer.at(-1) ?? ""] ?? {}) : listed
  for (const name of specified.headers) {
    if (headers.has(name) && response.headers?.[name] === undefined) throw missing(name)
  }
  const type = (headers.get("content-type") ?? "").split(";", 1)[0] ?? ""
  if (text !== "" && response.content?.[type] === undefined) throw missing(`the type ${type}`)
  const fits = (schema: ReadonlyArray<string>, value: unknown) => {
    const faults = specified.faults(schema, value)
    if (faults !== undefined) throw missing(`${faults} of ${JSON.stringify(value)}`)
  }
  if (/[/+]json$/.test(type)) fits([...pointer, "content", type, "schema"], JSON.parse(text))
  if (sent !== undefined && status < 300 && requestBody !== undefined) {
    fits([...found.pointer, "requestBody", "content", "application/json", "schema"], JSON.parse(sent))
  }
}

const read = () => {
  const document: unknown = JSON.parse(JSON.stringify(OpenApi.fromApi(Api)))
  const { paths, components } = document as Specification
  const operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, described]) => ({
      method,
      pattern: new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/\{[A-Za-z]+\}/g, "[^/]+")}/?$`),
      pointer: ["paths", path, method],
      described
    }))
  )
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  // Addresses of mail may hold any script, which the check for this format does not know.
  formats.default(ajv, ["date-time", "uuid", "uri"])
  ajv.addSchema(document as object, "spec", false, false)
  const validators = new Map<string, ValidateFunction>()
  return {
    headers: Object.keys(components.headers),
    responses: components.responses,
    // Where a path could be of two operations, the one with the fewer parameters is meant.
    operations: operations.sort((a, b) => parametersIn(a.pointer) - parametersIn(b.pointer)),
    faults: (pointer: ReadonlyArray<string>, value: unknown): string | undefined => {
      const parts = pointer.map((part) =>
        encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1"))
      )
      const $ref = `spec#/${parts.join("/")}`
      const validate = validators.get($ref) ?? ajv.compile({ $ref })
      validators.set($ref, validate)
      return validate(value) ? undefined : ajv.errorsText(validate.errors)
    }
  }
}

const parametersIn = (pointer: ReadonlyArray<string>): number => pointer.join().split("{").length

/** Made before any server runs in this process: it takes a while in which nobody would be answered. */
const specified = read()
