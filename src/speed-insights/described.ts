/** `speedInsights.collect` and the program for pages as the API document describes them: they are routes of their own. */
import * as Schema from "effect/Schema"
import type { JsonObject } from "#src/api/definition/json-schema.ts"
import type { Described } from "#src/api/definition/openapi.ts"
import { SpeedBatch } from "./batch.ts"

const Collected = Schema.Struct({
  accepted: Schema.Int.annotate({ description: "Measurements that were stored" }),
  duplicate: Schema.Boolean.annotate({ description: "The batch was stored before" }),
  sampledOut: Schema.Boolean.annotate({ description: "The batch is of the part that is not kept" })
})

const errors: Readonly<Record<number, string>> = {
  400: "The body is not JSON",
  403: "The project does not take measurements, or not from pages of this origin",
  404: "There is no such project",
  413: "The body is longer than 32,768 bytes",
  415: "The body is neither text/plain nor application/json",
  421: "This server does not answer for the host name of the request",
  422: "The batch is not valid; `errors` names every fault",
  429: "The project's limit is reached",
  500: "A fault of the service",
  503: "The store does not answer, or more comes than it takes"
}

const schemaOf = (schema: Schema.Constraint): JsonObject =>
  Schema.toJsonSchemaDocument(schema, { onExcessProperty: "error" }).schema
const headers = (...names: ReadonlyArray<string>) =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))

const failing = Object.fromEntries(
  Object.entries(errors).map(([status, description]) => [
    status,
    {
      description,
      headers: headers(
        "X-Request-Id",
        ...(status === "429" ? ["RateLimit", "RateLimit-Policy"] : []),
        ...(status === "429" || status === "503" ? ["Retry-After"] : [])
      ),
      content: { "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" } } }
    }
  ])
)

const common = {
  tags: ["speedInsights"],
  "x-role": null,
  "x-billing": false,
  "x-credentials": [],
  security: []
}

export const described = (): Described => ({
  paths: {
    "/v1/speed-insights/collect/{projectRef}": {
      post: {
        ...common,
        operationId: "speedInsights.collect",
        summary: "Take what a browser measured of a page",
        description:
          "Takes no credential: pages of the project's addresses, its verified domains and its allowedOrigins may call it, in any other than these it is 403.",
        "x-risk": "write",
        "x-sensitive": true,
        parameters: [
          {
            name: "projectRef",
            in: "path",
            required: true,
            description: "Public reference of the project",
            schema: { type: "string" }
          }
        ],
        requestBody: {
          required: true,
          content: {
            "application/json": { schema: { $ref: "#/components/schemas/SpeedBatch" } },
            "text/plain": { schema: { type: "string", description: "The same JSON: needs no preflight" } }
          }
        },
        responses: {
          202: {
            description: "The batch was dealt with",
            headers: headers("X-Request-Id"),
            content: { "application/json": { schema: schemaOf(Collected) } }
          },
          ...failing
        }
      }
    },
    "/v1/speed-insights/client.js": {
      get: {
        ...common,
        operationId: "speedInsights.client",
        summary: "The program that pages measure with",
        description: "Takes no credential.",
        "x-risk": "read",
        "x-sensitive": false,
        parameters: [],
        responses: {
          200: {
            description: "JavaScript",
            headers: headers("ETag", "X-Request-Id"),
            content: { "text/javascript": { schema: { type: "string" } } }
          },
          304: { description: "What the caller has is still so", headers: headers("ETag", "X-Request-Id") },
          421: failing["421"],
          500: failing["500"]
        }
      }
    }
  },
  schemas: { SpeedBatch: inlined(SpeedBatch) },
  securitySchemes: {}
})

/** Definitions that it refers to stand in it. */
const inlined = (schema: Schema.Constraint): JsonObject => {
  const { schema: root, definitions } = Schema.toJsonSchemaDocument(schema, { onExcessProperty: "error" })
  const resolve = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(resolve)
    if (typeof value !== "object" || value === null) return value
    const ref = "$ref" in value && typeof value.$ref === "string" ? value.$ref : undefined
    if (ref !== undefined) return resolve(definitions[ref.split("/").at(-1) ?? ""])
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolve(inner)]))
  }
  return resolve(root) as JsonObject
}
