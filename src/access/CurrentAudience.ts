/**
 * What a request is sent to, as tokens of agents name it (RFC 8707): the API, or the MCP endpoint. A token is good for
 * its own audience only. Whoever dispatches an operation in process for a caller of the MCP endpoint provides `"mcp"`
 * around it; the request itself carries the caller's credential.
 */
import * as Context from "effect/Context"

export type Audience = "api" | "mcp"

export const CurrentAudience = Context.Reference<Audience>("svc/access/CurrentAudience", {
  defaultValue: () => "api"
})
