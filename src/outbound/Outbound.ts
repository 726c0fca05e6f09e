/**
 * Requests to addresses that users name: webhooks, cron jobs, consumers of queues, what clients of OAuth say of themselves.
 *
 * Whoever names an address must not reach through us what only we can reach. So the name is resolved once, every
 * address is judged, and the connection goes to an address that passed; asking again could give another answer. No
 * redirect is followed, and the answer is read up to a bound.
 */
import * as net from "node:net"
import * as tls from "node:tls"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { isLoopback, rangesOf, refusal } from "#src/address-ranges.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { type Connections, type Got, makeConnections, type Target } from "./connections.ts"
import { Names, ownAddresses } from "./names.ts"

export interface OutboundRequest {
  readonly url: string
  /** `POST` unless said otherwise. */
  readonly method?: "GET" | "POST" | "PUT" | "PATCH"
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** For all of it: the name, the connection, the answer. */
  readonly timeoutMs: number
  /** Whoever names the address is nobody to us: what `SVC_OUTBOUND_ALLOW` opens for users stays shut. */
  readonly publicOnly?: boolean
  /** The URL names an instance of an app of ours by its address, which nobody else has chosen: it is not judged. */
  readonly isOwn?: boolean
  /** What comes after so many bytes is not read. */
  readonly maxAnswerBytes?: number
}

export interface OutboundAnswer {
  readonly status: number
  readonly headers: Got["headers"]
  readonly body: string
  readonly durationMs: number
}

export interface Reached {
  /** At least one; connections go to these, and the name is not asked for again. */
  readonly addresses: ReadonlyArray<string>
  /** Undefined: the connection is not encrypted, within this machine. */
  readonly secureContext: tls.SecureContext | undefined
}

/** The address may not be reached: trying again helps only when it changes. */
export class OutboundRefused extends Schema.TaggedError<OutboundRefused>()("OutboundRefused", {
  message: Schema.String
}) {}

/** No answer came. The request may have arrived all the same, unless the connection was never made. */
export class OutboundFailed extends Schema.TaggedError<OutboundFailed>()("OutboundFailed", {
  message: Schema.String,
  reason: Schema.Literals(["name", "connection", "timeout"])
}) {}

const defaultAnswerBytes = 64 * 1024
/**
 * A kept connection that ends within so long was closed before the request came. Later it may be that somebody who
 * works on the request vanished, and whether to ask again is for the caller to decide.
 */
const staleMs = 250

export class Outbound extends Context.Service<
  Outbound,
  {
    readonly post: (
      request: OutboundRequest
    ) => Effect.Effect<OutboundAnswer, OutboundRefused | OutboundFailed>
    /** Reads what is there. */
    readonly get: (
      request: Omit<OutboundRequest, "method" | "body">
    ) => Effect.Effect<OutboundAnswer, OutboundRefused | OutboundFailed>
    /**
     * What can be said of an address before anything is sent. Names are not resolved here: one may get its address
     * later, and what it resolves to is judged at every request.
     */
    readonly checkAddress: (url: string) => Effect.Effect<URL, OutboundRefused>
    /** For connections that somebody else makes: the addresses of a URL's host that may be reached now. */
    readonly reach: (url: string) => Effect.Effect<Reached, OutboundRefused | OutboundFailed>
  }
>()("svc/outbound/Outbound") {
  static readonly layer = Layer.effect(
    Outbound,
    Effect.gen(function* () {
      const { outboundAllow } = yield* AppConfig
      const { caPem } = yield* CertificateAuthority
      const names = yield* Names
      const allowed = rangesOf(outboundAllow)
      if (allowed.length > 0) {
        yield* Effect.logDebug(
          `requests to addresses that users name may reach ${outboundAllow.join(", ")} (SVC_OUTBOUND_ALLOW)`
        )
      }

      // Reading the authorities of the system takes a while, and making a context of them for each connection more.
      const secureContext = yield* Effect.cached(
        Effect.sync(() =>
          tls.createSecureContext({
            ca: [...tls.getCACertificates("default"), ...tls.getCACertificates("system"), caPem],
            minVersion: "TLSv1.2"
          })
        )
      )
      const connections = yield* makeConnections

      /** The URL and its host without brackets, when nothing is wrong with it as it is written. */
      const parse = Effect.fnUntraced(function* (text: string) {
        const refuse = (why: string) => new OutboundRefused({ message: `${shown(text)} ${why}` })
        if (!URL.canParse(text)) return yield* refuse("is no URL")
        const url = new URL(text)
        const host = url.hostname.replaceAll(/^\[|\]$|\.$/g, "")
        if (url.protocol !== "https:" && url.protocol !== "http:") return yield* refuse("is not an https URL")
        if (url.username !== "" || url.password !== "") {
          return yield* refuse("holds a user name or a password, which would be shown wherever it is")
        }
        if (host === "") return yield* refuse("names no host")
        return { url, host }
      })

      /** Those of the addresses that may be reached. */
      const judge = Effect.fnUntraced(function* (
        url: URL,
        addresses: ReadonlyArray<string>,
        publicOnly = false
      ) {
        const judged = addresses.map(
          (address) => [address, refusal(address, publicOnly ? [] : allowed)] as const
        )
        const good = judged.flatMap(([address, why]) => (why === undefined ? [address] : []))
        const [first] = judged
        if (first === undefined || good.length === 0) {
          const named = url.hostname.includes(first?.[0] ?? "") ? "" : ` (${first?.[0]})`
          return yield* new OutboundRefused({
            message: `${url.host}${named} is ${first?.[1] ?? "no address"}: requests do not go there (see SVC_OUTBOUND_ALLOW)`
          })
        }
        if (url.protocol === "http:" && !good.every(isLoopback)) {
          return yield* new OutboundRefused({
            message: `${url.host} is not on this machine: requests go to https URLs only`
          })
        }
        return good
      })

      /** The addresses of a host, as far as they are known without asking anybody. */
      const known = (host: string) => (net.isIP(host) === 0 ? ownAddresses(host) : [host])

      const checkAddress = Effect.fnUntraced(function* (text: string) {
        const { url, host } = yield* parse(text)
        const addresses = known(host)
        if (addresses !== undefined) yield* judge(url, addresses)
        else if (url.protocol === "http:") {
          return yield* new OutboundRefused({ message: `${shown(text)} is not an https URL` })
        }
        return url
      })

      const resolve = Effect.fnUntraced(function* (text: string, publicOnly = false) {
        const { url, host } = yield* parse(text)
        const found =
          known(host) ??
          (yield* Effect.mapError(
            names(host),
            ({ message }) => new OutboundFailed({ message, reason: "name" })
          ))
        const addresses = yield* judge(url, found, publicOnly)
        const secure = url.protocol === "https:"
        return { url, host, addresses, secureContext: secure ? yield* secureContext : undefined }
      })

      const ownInstance = (text: string) =>
        Effect.map(parse(text), ({ url, host }) => ({
          url,
          host,
          addresses: [host],
          secureContext: undefined
        }))

      const exchange = Effect.fnUntraced(function* (request: OutboundRequest) {
        const { url, addresses, secureContext } = yield* request.isOwn === true
          ? ownInstance(request.url)
          : resolve(request.url, request.publicOnly)
        return yield* attempt(connections, { url, secureContext }, addresses, request)
      })

      const send = Effect.fnUntraced(function* (request: OutboundRequest) {
        const start = yield* Clock.currentTimeMillis
        const answer = yield* Effect.timeoutOrElse(exchange(request), {
          duration: request.timeoutMs,
          orElse: () =>
            new OutboundFailed({
              message: `There was no complete answer within ${request.timeoutMs / 1000} s`,
              reason: "timeout"
            })
        })
        return { ...answer, durationMs: (yield* Clock.currentTimeMillis) - start }
      })
      // The place in the program, which a trace would hold as well, costs more than the rest of the span.
      const spanned = (name: string) =>
        Effect.withSpan(name, undefined, {
          captureStackTrace: false
        })

      return Outbound.of({
        checkAddress,
        reach: (url) => resolve(url),
        post: (request) => send(request).pipe(spanned("Outbound.post")),
        get: (request) => send({ ...request, method: "GET", body: "" }).pipe(spanned("Outbound.get"))
      })
    })
  )
}

/** One address after the other, until one takes the connection. */
const attempt = (
  connections: Connections,
  target: Omit<Target, "address">,
  [address = "", ...others]: ReadonlyArray<string>,
  request: OutboundRequest
): Effect.Effect<Got, OutboundFailed> => {
  const { method = "POST", headers, body, maxAnswerBytes = defaultAnswerBytes } = request
  return Effect.flatMap(Clock.Clock, (clock) => {
    const begun = clock.currentTimeMillisUnsafe()
    const sent = {
      method,
      headers: { "user-agent": "svc", ...headers },
      body: method === "GET" ? undefined : body,
      maxAnswerBytes
    }
    return Effect.catch(connections.exchange({ ...target, address }, sent), (broken) => {
      // The other end had closed a connection that was kept for later: nobody looked at the request.
      if (broken.closed && clock.currentTimeMillisUnsafe() - begun < staleMs)
        return attempt(connections, target, [address, ...others], request)
      if (!broken.sent && others.length > 0) return attempt(connections, target, others, request)
      return new OutboundFailed({
        message: `The request did not get through: ${broken.message}`,
        reason: "connection"
      })
    })
  })
}

/** As much of what somebody wrote as belongs in a message, and no password in it. */
const shown = (text: string) => {
  const bare = text.replace(/\/\/[^/?#]*@/, "//")
  return bare.length > 100 ? `${bare.slice(0, 100)}...` : bare
}
