/** What is refused before the protocol is reached, in the form that its clients show: a JSON-RPC error (MCP, "Transports"). */
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import type { Problem } from "#src/api/problem.ts"

const parseError = -32700
const serverError = -32000

export const rpcError = (
  {
    status,
    code,
    detail,
    errors,
    headers
  }: Pick<Problem, "status" | "code" | "detail" | "errors" | "headers">,
  id?: unknown
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(
    {
      jsonrpc: "2.0",
      id: typeof id === "string" || typeof id === "number" ? id : null,
      error: {
        code: status === 400 || status === 422 ? parseError : serverError,
        message: detail,
        data: { code, ...(errors === undefined ? {} : { errors }) }
      }
    },
    // Clients of the protocol know no 422.
    { status: status === 422 ? 400 : status, headers: { "cache-control": "no-store", ...headers } }
  )
