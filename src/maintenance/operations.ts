/** Operations of the API as maintenance names and calls them. */
import * as Context from "effect/Context"
import { Api } from "#src/api/definition/api.ts"
import { Operation } from "#src/api/definition/operation.ts"
import type { Request } from "#src/api/dispatch.ts"
import type { Remedy } from "./finding.ts"

interface Entry {
  readonly operation: Operation
  readonly method: string
  /** With parameters as `:name`. */
  readonly path: string
}

let entries: ReadonlyMap<string, Entry> | undefined

/** Undefined: there is no such operation. */
export const operationOf = (id: string): Entry | undefined => {
  entries ??= new Map(
    Object.values(Api.groups).flatMap((group) =>
      Object.values(group.endpoints).flatMap(({ annotations, method, path }) => {
        const operation = Context.get(annotations, Operation)
        return operation === undefined ? [] : [[operation.id, { operation, method, path }] as const]
      })
    )
  )
  return entries.get(id)
}

/** The request that calls the operation, which takes effect once whoever sends it again under this key. */
export const requestOf = (
  { operationId, parameters: { path, query, body } }: Remedy,
  orgId: string,
  idempotencyKey: string
): Request | undefined => {
  const entry = operationOf(operationId)
  if (entry === undefined) return undefined
  const address = entry.path.replaceAll(/:(\w+)/g, (_, name: string) =>
    encodeURIComponent(name === "orgId" ? orgId : (path[name] ?? ""))
  )
  const search = new URLSearchParams(query).toString()
  return {
    method: entry.method,
    url: search === "" ? address : `${address}?${search}`,
    headers: { "idempotency-key": idempotencyKey },
    body: body === undefined ? undefined : { text: JSON.stringify(body), type: "application/json" }
  }
}
