/**
 * Requests to addresses that users name: webhooks, cron jobs, consumers of queues, what clients of OAuth say of themselves.
 *
 * Whoever names an address must not reach through us what only we can reach. So the name is resolved once, every
 * address is judged, and the connection goes to an address that passed; asking again could give another answer. No
 * redirect is followed, and the answer is read up to a bound.
 */
import * as http from "node:http"
import * as https from "node:https"
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
  readonly headers: http.IncomingHttpHeaders
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
/** Shorter than what servers keep an idle connection for, so that theirs is seldom closed under a request. */
const idleMs = 4000
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
      const agents = yield* Effect.acquireRelease(
        Effect.sync(() => {
          const options = {
            keepAlive: true,
            timeout: idleMs,
            // Of one host: as many as jobs and batches call it at once, which would connect anew each time.
            maxFreeSockets: 1_024,
            scheduling: "lifo"
          } as const
          return { http: new http.Agent(options), https: new https.Agent(options) }
        }),
        ({ http, https }) =>
          Effect.sync(() => {
            http.destroy()
            https.destroy()
          })
      )

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
        const { url, host, addresses, secureContext } = yield* request.isOwn === true
          ? ownInstance(request.url)
          : resolve(request.url, request.publicOnly)
        const secure = secureContext !== undefined
        const options: https.RequestOptions = {
          method: request.method ?? "POST",
          path: `${url.pathname}${url.search}`,
          port: url.port === "" ? (secure ? 443 : 80) : Number(url.port),
          headers: {
            "user-agent": "svc",
            ...request.headers,
            host: url.host,
            ...(request.method === "GET" ? {} : { "content-length": Buffer.byteLength(request.body) })
          },
          ...(secure
            ? {
                agent: agents.https,
                secureContext,
                servername: net.isIP(host) === 0 ? host : ""
              }
            : { agent: agents.http })
        }
        return yield* attempt(secure ? https : http, options, addresses, request)
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

type Got = Omit<OutboundAnswer, "durationMs">

/** One address after the other, until one takes the connection. */
const attempt = (
  module: typeof http | typeof https,
  options: https.RequestOptions,
  [address, ...others]: ReadonlyArray<string>,
  request: OutboundRequest
): Effect.Effect<Got, OutboundFailed> =>
  Effect.catch(once(module, { ...options, host: address }, request), (fault) => {
    if (fault.sent) return Effect.fail(fault.error)
    if (fault.stale) return attempt(module, options, [address ?? "", ...others], request)
    return others.length > 0 ? attempt(module, options, others, request) : Effect.fail(fault.error)
  })

interface Fault {
  readonly error: OutboundFailed
  /** Somebody may have received it. */
  readonly sent: boolean
  /** The far end had closed a connection that was kept for later: nobody looked at the request. */
  readonly stale: boolean
}

const once = Effect.fnUntraced(function* (
  module: typeof http | typeof https,
  options: https.RequestOptions,
  { body, maxAnswerBytes = defaultAnswerBytes }: OutboundRequest
) {
  const clock = yield* Clock.Clock
  return yield* Effect.callback<Got, Fault>((resume) => {
    const begun = clock.currentTimeMillisUnsafe()
    let connected = false
    let answered = false
    const outgoing = module.request(options, (incoming) => {
      answered = true
      const chunks: Array<Buffer> = []
      let size = 0
      const finish = () =>
        resume(
          Effect.succeed({
            status: incoming.statusCode ?? 0,
            headers: incoming.headers,
            body: Buffer.concat(chunks).subarray(0, maxAnswerBytes).toString("utf8")
          })
        )
      incoming.on("data", (chunk: Buffer) => {
        chunks.push(chunk)
        size += chunk.length
        if (size < maxAnswerBytes) return
        finish()
        outgoing.destroy()
      })
      incoming.on("end", finish)
      incoming.on("error", fail)
    })
    const fail = (error: Error) => {
      const closed = "code" in error && (error.code === "ECONNRESET" || error.code === "EPIPE")
      const atOnce = clock.currentTimeMillisUnsafe() - begun < staleMs
      const stale = closed && outgoing.reusedSocket && !answered && atOnce
      resume(
        Effect.fail({
          error: new OutboundFailed({
            message: `The request did not get through: ${error.message}`,
            reason: "connection"
          }),
          sent: connected && !stale,
          stale
        })
      )
    }
    outgoing.on("error", fail)
    outgoing.on("socket", (socket) => {
      connected = outgoing.reusedSocket
      // A listener on a connection that is made already would stay there.
      if (connected) return
      socket.once(module === https ? "secureConnect" : "connect", () => {
        connected = true
      })
    })
    outgoing.end(body)
    return Effect.sync(() => outgoing.destroy())
  })
})

/** As much of what somebody wrote as belongs in a message, and no password in it. */
const shown = (text: string) => {
  const bare = text.replace(/\/\/[^/?#]*@/, "//")
  return bare.length > 100 ? `${bare.slice(0, 100)}...` : bare
}
