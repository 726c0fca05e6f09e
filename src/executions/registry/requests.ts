/**
 * Requests to a registry that a user named, and to wherever it sends its clients: for a token, and for the blobs of an
 * image. Every host is resolved once and judged, and connections go to addresses that passed. Whoever runs the registry
 * chooses all of it, and must not reach through us what only we can reach.
 */
import * as http from "node:http"
import * as https from "node:https"
import * as net from "node:net"
import * as tls from "node:tls"
import * as Effect from "effect/Effect"
import type * as IpNetwork from "effect/net/IpNetwork"
import * as Schema from "effect/Schema"
import { isLoopback } from "#src/address-ranges.ts"
import { ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import { judgedAddresses } from "#src/outbound/lookup.ts"
import { Token } from "./documents.ts"

/** A blob is sent on to where it is stored, and from there at most twice more. */
const mostRedirects = 3
const tokenBytes = 64 * 1024

export const failed = (message: string, cause?: unknown) =>
  new ContainerError({ reason: "Failed", message, ...(cause === undefined ? {} : { cause }) })

/** As Docker and Podman trust: the program's own authorities and the system's. */
let trusted: tls.SecureContext | undefined
const secureContext = () => {
  trusted ??= tls.createSecureContext({
    ca: [...tls.getCACertificates("default"), ...tls.getCACertificates("system")],
    minVersion: "TLSv1.2"
  })
  return trusted
}

export interface RegistryOptions {
  readonly allowed: ReadonlyArray<IpNetwork.IpNetwork>
  /** How long nothing may come. */
  readonly stallMs: number
}

/** An answer, which goes with the scope. */
const open = Effect.fnUntraced(function* (
  url: URL,
  headers: http.OutgoingHttpHeaders,
  options: RegistryOptions
) {
  const { allowed, stallMs } = options
  const host = url.hostname.replaceAll(/^\[|\]$|\.$/g, "")
  const secure = url.protocol === "https:"
  if ((!secure && url.protocol !== "http:") || url.username !== "" || url.password !== "" || host === "")
    return yield* failed(`${url.protocol}//${url.host} is denied: it is no https address`)
  const addresses = yield* Effect.mapError(judgedAddresses(host, allowed), ({ message }) => failed(message))
  if (!secure && !addresses.every(isLoopback))
    return yield* failed(`${url.host} is denied: it is not on this machine, and not an https address`)
  /** Whoever waits for the answer can be interrupted; the connection ends with the scope, answered or not. */
  const attempt = Effect.fnUntraced(function* (address: string) {
    const request = yield* Effect.acquireRelease(
      Effect.sync(() =>
        (secure ? https : http)
          .request({
            host: address,
            port: url.port === "" ? (secure ? 443 : 80) : Number(url.port),
            path: `${url.pathname}${url.search}`,
            headers: { "user-agent": "svc", ...headers, host: url.host },
            agent: false,
            timeout: stallMs,
            ...(secure
              ? { secureContext: secureContext(), servername: net.isIP(host) === 0 ? host : "" }
              : {})
          })
          // One that comes when nobody waits any more is nobody's.
          .on("error", () => {})
      ),
      (request) => Effect.sync(() => request.destroy())
    )
    return yield* Effect.callback<http.IncomingMessage, ContainerError>((resume) => {
      request.once("timeout", () =>
        request.destroy(new Error(`${url.host}: nothing came for ${stallMs / 1_000} s`))
      )
      request.once("response", (response) => resume(Effect.succeed(response)))
      request.once("error", (cause) => resume(Effect.fail(failed(cause.message, cause))))
      request.end()
    })
  })
  const [first = "", ...others] = addresses
  return yield* others.reduce(
    (before, address) => Effect.catch(before, () => attempt(address)),
    attempt(first)
  )
})

/** All of it, if it is not more than so much. */
export const bodyOf = (response: http.IncomingMessage, mostBytes: number) =>
  Effect.tryPromise({
    try: async () => {
      const chunks: Array<Buffer> = []
      let bytes = 0
      for await (const chunk of response) {
        if (!Buffer.isBuffer(chunk)) continue
        bytes += chunk.length
        if (bytes > mostBytes) throw new Error(`the registry answers with more than ${mostBytes} bytes`)
        chunks.push(chunk)
      }
      return Buffer.concat(chunks)
    },
    catch: (cause) => failed(cause instanceof Error ? cause.message : String(cause), cause)
  })

/** The parameters of `WWW-Authenticate: Bearer ...` (RFC 6750, section 3); undefined: it asks for something else. */
const challengeOf = (header: string | undefined): ReadonlyMap<string, string> | undefined =>
  header === undefined || !/^bearer\s/i.test(header)
    ? undefined
    : new Map([...header.matchAll(/(\w+)="([^"]*)"/g)].map(([, name = "", value = ""]) => [name, value]))

/** Requests for one repository of one registry, without a password. `host`: with its port, if it has one. */
export const registryRequests = (host: string, repository: string, options: RegistryOptions) => {
  let token: string | undefined
  let base = `https://${host}`

  const fetchToken = Effect.fnUntraced(function* (challenge: ReadonlyMap<string, string>) {
    const realm = challenge.get("realm") ?? ""
    if (!URL.canParse(realm)) return yield* failed(`unauthorized: ${host} does not say where tokens are`)
    const url = new URL(realm)
    url.searchParams.set("service", challenge.get("service") ?? "")
    url.searchParams.set("scope", `repository:${repository}:pull`)
    const response = yield* open(url, { accept: "application/json" }, options)
    if (response.statusCode !== 200)
      return yield* failed(`unauthorized: ${url.host} gives no token (${response.statusCode})`)
    const said = yield* Schema.decodeUnknownEffect(Token)(`${yield* bodyOf(response, tokenBytes)}`).pipe(
      Effect.mapError((cause) => failed(`unauthorized: ${url.host} gives no token`, cause))
    )
    return said.token ?? said.access_token ?? ""
  }, Effect.scoped)

  const once = (target: string, accept: string) =>
    open(
      new URL(`${base}/v2/${repository}/${target}`),
      { accept, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) },
      options
    )

  const ask = Effect.fnUntraced(function* (target: string, accept: string) {
    const response = yield* once(target, accept)
    // A token may end while a large image comes.
    if (response.statusCode !== 401) return response
    const challenge = challengeOf(response.headers["www-authenticate"])
    response.destroy()
    if (challenge === undefined) return response
    token = yield* fetchToken(challenge)
    return yield* once(target, accept)
  })

  const found = (response: http.IncomingMessage, what: string) => {
    const status = response.statusCode ?? 0
    if (status === 200) return Effect.succeed(response)
    if (status === 404) return Effect.fail(failed(`${what} was not found at ${host}`))
    if (status === 401 || status === 403) return Effect.fail(failed(`${what}: ${host} says unauthorized`))
    if (status >= 300 && status < 400)
      return Effect.fail(failed(`${what}: ${host} leads elsewhere, which is denied`))
    return Effect.fail(failed(`${what}: ${host} answers with ${status}`))
  }

  return {
    /** Registries of this machine that speak without encryption are asked so from here on. */
    begin: Effect.gen(function* () {
      const asked = yield* Effect.result(Effect.scoped(open(new URL(`${base}/v2/`), {}, options)))
      if (asked._tag === "Success") return
      const { cause, message } = asked.failure
      // Judged again: without encryption only this machine is asked.
      if (cause === undefined || /nothing came for/.test(message)) return yield* asked.failure
      base = `http://${host}`
      yield* Effect.scoped(open(new URL(`${base}/v2/`), {}, options)).pipe(
        Effect.mapError(() => asked.failure)
      )
    }),
    manifest: (version: string, accept: string) =>
      Effect.flatMap(ask(`manifests/${version}`, accept), (response) =>
        found(response, `manifest ${version}`)
      ),
    blob: Effect.fnUntraced(function* (digest: string) {
      let response = yield* ask(`blobs/${digest}`, "*/*")
      let at = new URL(`${base}/v2/${repository}/blobs/${digest}`)
      for (let count = 0; count < mostRedirects; count++) {
        const { location } = response.headers
        if (![301, 302, 303, 307, 308].includes(response.statusCode ?? 0) || location === undefined) break
        if (!URL.canParse(location, at.href)) break
        at = new URL(location, at)
        response.destroy()
        // Without the token, which is the registry's: it leads to storage that is signed for by the address.
        response = yield* open(at, {}, options)
      }
      return yield* found(response, `blob ${digest}`)
    })
  }
}
