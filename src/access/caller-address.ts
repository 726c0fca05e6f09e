/** Where a request comes from, as far as it can be believed, and what counts as one place. */
import * as net from "node:net"
import { isOfEnvironment } from "#src/infra/containers/network.ts"

/**
 * The address of the caller. Each proxy of ours appends the address it was called from to `X-Forwarded-For`, so the
 * entry that the first of them wrote is as many from the end as there are proxies; what stands before it anybody can
 * have written. Apps on this machine call it without a proxy, so of what they write nothing counts.
 */
export const callerAddress = (
  connected: string | null,
  forwardedFor: string | undefined,
  proxies: number,
  /** The range of their addresses. */
  environments: string
): string | null => {
  if (proxies === 0 || forwardedFor === undefined) return connected
  if (connected !== null && isOfEnvironment(connected, environments)) return connected
  const entry =
    forwardedFor
      .split(",")
      .at(-proxies)
      ?.trim()
      .replace(/^\[|\]$/g, "") ?? ""
  return net.isIP(entry) === 0 ? connected : entry
}

/** The network that one customer usually has: an IPv4 address, or 64 bits of an IPv6 address (RFC 6177). */
export const networkOf = (address: string): string => {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1]
  if (mapped !== undefined) return mapped
  const plain = address.split("%", 1)[0] ?? address
  if (!net.isIPv6(plain)) return address
  const [head = "", tail] = plain.split("::", 2)
  const before = head === "" ? [] : head.split(":")
  const after = tail === undefined || tail === "" ? [] : tail.split(":")
  const missing = tail === undefined ? 0 : Math.max(0, 8 - before.length - after.length)
  const groups = [...before, ...Array.from({ length: missing }, () => "0"), ...after]
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":")}::/64`
}
