/**
 * An outside origin as a target: one of its addresses, judged like every address that somebody names. What HAProxy
 * connects to is that address and no name, so a name that is moved inside later leads nowhere new.
 */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import type * as IpNetwork from "effect/net/IpNetwork"
import { isMapWord } from "#src/infra/haproxy/control.ts"
import { judgedAddresses } from "#src/outbound/lookup.ts"
import type { Target } from "./target.ts"

export interface OriginTarget {
  readonly target: Target | undefined
  /** Why there is none, or why it may be out of date. */
  readonly trouble: string | undefined
}

const hostOf = (origin: string) => new URL(origin).hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "")
const isLocalName = (bare: string) => bare === "localhost" || bare.endsWith(".localhost")

/** Whether the addresses of an origin may become others. */
export const isLookedUp = (origin: string | undefined): boolean =>
  origin !== undefined && net.isIP(hostOf(origin)) === 0 && !isLocalName(hostOf(origin))

/** `current` stays while one of the name's addresses is its own, and while nobody knows the name's addresses. */
export const originTarget = Effect.fnUntraced(function* (
  origin: string,
  current: Target | undefined,
  allowed: ReadonlyArray<IpNetwork.IpNetwork>
): Effect.fn.Return<OriginTarget> {
  const { protocol, port, host } = new URL(origin)
  const bare = hostOf(origin)
  const isName = net.isIP(bare) === 0
  const isSecure = protocol === "https:"
  if (isName && !isMapWord(host))
    return { target: undefined, trouble: `the edge takes no such host name as that of ${origin}` }
  if (isSecure && !isName)
    return { target: undefined, trouble: `${origin} has to name its host: certificates are checked by name` }
  const wish = (address: string): Target => ({
    address,
    port: port === "" ? (isSecure ? 443 : 80) : Number(port),
    ...(isSecure ? { tls: bare } : {}),
    // A machine of many names tells them apart by it; an app of this machine sees the name that visitors use.
    ...(isName && !isLocalName(bare) ? { host } : {})
  })
  const isCurrent = (wanted: Target) =>
    current !== undefined &&
    current.port === wanted.port &&
    current.tls === wanted.tls &&
    current.host === wanted.host
  const found = yield* Effect.result(judgedAddresses(bare, allowed))
  if (found._tag === "Success") {
    const kept = found.success.find((address) => address === current?.address)
    const address = kept ?? found.success.find((one) => net.isIPv4(one)) ?? found.success[0]
    return { target: address === undefined ? undefined : wish(address), trouble: undefined }
  }
  const { _tag, message } = found.failure
  // An address that is refused is not used a moment longer; a name server that is away changes nothing.
  if (_tag === "NameUnknown" && current !== undefined && isCurrent(wish(current.address)))
    return { target: current, trouble: message }
  return { target: undefined, trouble: message }
})
