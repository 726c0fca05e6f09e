/** Requests as the edge logs them. */
import type { LoggedRequest } from "#src/edge/requests/log-format.ts"

export const logged = (environment: string, rest: Partial<LoggedRequest> = {}): LoggedRequest => ({
  environment,
  host: "shop.example",
  method: "GET",
  path: "/",
  status: 200,
  durationMs: 30,
  bytesIn: 100,
  bytesOut: 1000,
  end: "--",
  ...rest
})
export const noon = Date.UTC(2026, 10, 22, 12)
