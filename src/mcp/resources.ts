/**
 * MCP resources: the manifest, and every resource of the organization with its status and with its history. Each is read
 * by an operation, as the caller.
 */
import { looksLikeUid } from "#schemas/names.ts"
import { isObject } from "#src/api/definition/json-schema.ts"

export const manifestUri = "svc://manifest"
const resourceForm = /^svc:\/\/resources\/([^/]+)(\/events)?$/

const resourceUri = (uid: string): string => `svc://resources/${uid}`

/** The operation that following resources takes. */
export const subscribing = "resources.watch"

export interface Reading {
  readonly operation: "manifest.get" | "resources.get" | "resources.events"
  /** Of the request, below the organization. */
  readonly path: string
  readonly type: "application/json" | "application/yaml"
}

/** The page of the list of resources that MCP's cursor names; it is the API's own. */
export const listPath = (cursor: string | undefined): string =>
  `/resources?limit=100${cursor === undefined ? "" : `&cursor=${encodeURIComponent(cursor)}`}`

/** How a resource is read; undefined: the URI names none. */
export const readingOf = (uri: unknown): Reading | undefined => {
  if (uri === manifestUri) return { operation: "manifest.get", path: "/manifest", type: "application/yaml" }
  const [, uid, events] = typeof uri === "string" ? (resourceForm.exec(uri) ?? []) : []
  if (uid === undefined || !looksLikeUid(uid)) return undefined
  return {
    operation: events === undefined ? "resources.get" : "resources.events",
    path: `/resources/${uid}${events ?? ""}`,
    type: "application/json"
  }
}

export const fixedResources = [
  {
    uri: manifestUri,
    name: "manifest",
    title: "Manifest",
    description:
      "The whole desired state of the organization as one document, ready to be changed and planned",
    mimeType: "application/yaml"
  }
]

export const resourceTemplates = [
  {
    uriTemplate: "svc://resources/{uid}",
    name: "resource",
    title: "Resource",
    description: "A resource with its specification, its status and its conditions",
    mimeType: "application/json"
  },
  {
    uriTemplate: "svc://resources/{uid}/events",
    name: "events",
    title: "History of a resource",
    description: "What happened to a resource, newest first",
    mimeType: "application/json"
  }
]

/** An item of `resources.list`, as MCP lists resources. */
export const listed = (
  item: unknown
): ReadonlyArray<{ uri: string; name: string; description: string; mimeType: string }> =>
  isObject(item) && typeof item["uid"] === "string"
    ? [
        {
          uri: resourceUri(item["uid"]),
          name: String(item["address"]),
          description: `${item["kind"]}, ${item["phase"]}`,
          mimeType: "application/json"
        }
      ]
    : []

/** URIs of what shows the resource itself. */
export const urisOf = (uid: string): ReadonlyArray<string> => [resourceUri(uid), `${resourceUri(uid)}/events`]
