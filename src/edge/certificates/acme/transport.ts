/**
 * Requests to an ACME server. The operator names its directory, so it is not one of the addresses that users name
 * (`Outbound`): it may be a private one, with a certificate of its own authority.
 */
import * as tls from "node:tls"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { AcmeError } from "./errors.ts"

export interface AcmeRequest {
  readonly method: "GET" | "HEAD" | "POST"
  readonly url: string
  /** Sent as `application/jose+json`. */
  readonly body?: string
}

export interface AcmeAnswer {
  readonly status: number
  /** The first value of a header, by its name in lower case. */
  readonly header: (name: string) => string | undefined
  readonly text: string
  /** Seconds. */
  readonly retryAfter: number | undefined
}

export type Transport = (request: AcmeRequest) => Effect.Effect<AcmeAnswer, AcmeError>

/** For all of a request. */
const patience = "30 seconds"
/** Chains and directories have a few kilobytes. */
const mostBytes = 1024 * 1024
/** Whatever the server says, it is asked again within a week. */
const longestWait = 7 * 86_400

/** `extraCa`: authorities to trust beside those of the system, in PEM. */
export const makeTransport = Effect.fnUntraced(function* (extraCa: string | undefined) {
  const { Agent, request } = yield* Effect.promise(() => import("undici"))
  const agent = yield* Effect.acquireRelease(
    Effect.sync(
      () =>
        new Agent({
          connect: {
            ca: [
              ...tls.getCACertificates("default"),
              ...tls.getCACertificates("system"),
              ...(extraCa === undefined ? [] : [extraCa])
            ],
            timeout: 10_000
          },
          maxResponseSize: mostBytes,
          maxHeaderSize: 32 * 1024,
          keepAliveTimeout: 4_000
        })
    ),
    (agent) => Effect.promise(() => agent.destroy().catch(() => {}))
  )
  const transport: Transport = Effect.fnUntraced(function* ({ method, url, body }) {
    if (!/^https?:/.test(url) || !URL.canParse(url)) {
      return yield* new AcmeError({
        message: "The certificate authority named an address that is none",
        type: "answer"
      })
    }
    const { host } = new URL(url)
    const answer = yield* Effect.tryPromise({
      try: async (signal) => {
        const {
          statusCode,
          headers,
          body: answered
        } = await request(url, {
          dispatcher: agent,
          method,
          signal,
          headers: {
            "user-agent": "svc",
            "accept-language": "en",
            ...(body === undefined ? {} : { "content-type": "application/jose+json" })
          },
          ...(body === undefined ? {} : { body })
        })
        return { statusCode, headers, text: await answered.text() }
      },
      catch: (cause) =>
        new AcmeError({
          message: `The certificate authority at ${host} did not answer: ${cause instanceof Error ? cause.message : "no reason is known"}`,
          type: "unreachable"
        })
    }).pipe(
      Effect.timeoutOrElse({
        duration: patience,
        orElse: () =>
          new AcmeError({
            message: `The certificate authority at ${host} did not answer within ${patience}`,
            type: "unreachable"
          })
      })
    )
    const header = (name: string) => {
      const value = answer.headers[name]
      return Array.isArray(value) ? value[0] : value
    }
    const now = yield* Clock.currentTimeMillis
    return {
      status: answer.statusCode,
      header,
      text: answer.text,
      retryAfter: secondsUntil(header("retry-after"), now)
    }
  })
  return transport
})

/** Seconds, or a date (RFC 9110, section 10.2.3). */
export const secondsUntil = (value: string | undefined, now: number): number | undefined => {
  if (value === undefined) return undefined
  const seconds = /^\d+$/.test(value.trim()) ? Number(value) : (Date.parse(value) - now) / 1000
  return Number.isFinite(seconds) ? Math.min(longestWait, Math.max(0, seconds)) : undefined
}
