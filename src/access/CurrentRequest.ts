/** What is known of the request at hand before anybody has looked at who sent it. */
import { randomUUID } from "node:crypto"
import * as Context from "effect/Context"

export interface RequestInfo {
  /** From `X-Request-Id` if it looks like one, else made. In every log line, problem and audit record. */
  readonly id: string
  readonly address: string | null
}

export const CurrentRequest = Context.Reference<RequestInfo>("svc/access/CurrentRequest", {
  defaultValue: () => ({ id: "none", address: null })
})

export const requestId = (header: string | undefined): string =>
  header !== undefined && /^[A-Za-z0-9._:-]{8,128}$/.test(header) ? header : randomUUID()
