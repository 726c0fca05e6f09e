/**
 * Who sent the request under way, where that was asked before it came to its operation: the MCP endpoint asks once, for
 * all that one of its requests carries. It is provided within the process; no part of a request can say it.
 */
import * as Context from "effect/Context"
import type { Credential, Identity } from "./Access.ts"

export const Identified = Context.Reference<
  { readonly credential: Credential; readonly identity: Identity } | undefined
>("svc/access/Identified", { defaultValue: () => undefined })
