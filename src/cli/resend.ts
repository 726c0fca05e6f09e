/**
 * Requests that survive a lost connection. A POST carries an `Idempotency-Key`, so that the server does once what is
 * asked for twice; what carries none and is not safe to repeat (PATCH) is sent once.
 *
 * The whole answer is read here: one that breaks off halfway is lost as well.
 */
import { randomUUID } from "node:crypto"
import { setTimeout } from "node:timers/promises"

/** Milliseconds before each further try. */
const usualPauses: ReadonlyArray<number> = [200, 600, 1_800]

const repeatable: ReadonlySet<string> = new Set(["GET", "HEAD", "PUT", "DELETE"])
/** Statuses that have no body (Fetch standard). */
const bodiless: ReadonlySet<number> = new Set([101, 204, 205, 304])

export const resending =
  (send: typeof fetch, pauses = usualPauses): typeof fetch =>
  async (input, init) => {
    const method = (init?.method ?? "GET").toUpperCase()
    const headers = new Headers(init?.headers)
    if (method === "POST" && !headers.has("idempotency-key")) headers.set("idempotency-key", randomUUID())
    const may = repeatable.has(method) || headers.has("idempotency-key")
    const request = { ...init, headers }
    for (let lost = 0; ; lost++) {
      const pause = may ? pauses[lost] : undefined
      try {
        const response = await send(input, request)
        const body = bodiless.has(response.status) ? null : await response.arrayBuffer()
        // The first one is being carried out still.
        const busy = lost > 0 && response.status === 409 && saysInFlight(body)
        if (!busy || pause === undefined) return new Response(body, response)
      } catch (error) {
        if (pause === undefined || init?.signal?.aborted === true || (lost === 0 && wasRefused(error)))
          throw error
      }
      await setTimeout(pause, undefined, init?.signal ? { signal: init.signal } : {})
    }
  }

const saysInFlight = (body: ArrayBuffer | null) =>
  body !== null && Buffer.from(body).toString("utf8").includes('"idempotency_key_in_flight"')

/** Nothing was sent, and nobody is there. */
const wasRefused = (error: unknown): boolean => {
  const cause = error instanceof Error ? error.cause : undefined
  const codes = cause instanceof AggregateError ? cause.errors : [cause]
  return codes.some(
    (one) =>
      one instanceof Error && "code" in one && /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN)$/.test(String(one.code))
  )
}
