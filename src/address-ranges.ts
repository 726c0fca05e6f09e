/** Which addresses requests may reach when somebody else says where they go. */
import * as IpNetwork from "effect/net/IpNetwork"
import * as NetAddress from "effect/net/NetAddress"
import * as Result from "effect/Result"

const networks = (...texts: ReadonlyArray<string>) => texts.map(IpNetwork.fromStringUnsafe)

/** What hands out credentials of the machine to whoever asks. No setting opens these. */
const never = networks(
  "169.254.0.0/16",
  "fe80::/10",
  // Metadata services of clouds that are not at a link-local address.
  "100.100.100.200/32",
  "fd00:ec2::254/128"
)

const loopback = networks("127.0.0.0/8", "::1/128")

/** Not on the public internet (the special-purpose registries of IANA), or another way to write what is not. */
const special: ReadonlyArray<readonly [what: string, ranges: ReadonlyArray<IpNetwork.IpNetwork>]> = [
  ["an address of this machine", loopback],
  ["a link-local address", networks("169.254.0.0/16", "fe80::/10")],
  [
    "a private address",
    networks("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")
  ],
  ["a multicast address", networks("224.0.0.0/4", "ff00::/8")],
  [
    "a reserved address",
    networks(
      "0.0.0.0/8",
      "192.0.0.0/24",
      "192.0.2.0/24",
      "192.88.99.0/24",
      "198.18.0.0/15",
      "198.51.100.0/24",
      "203.0.113.0/24",
      "240.0.0.0/4",
      "::/96",
      "::ffff:0:0:0/96",
      "64:ff9b::/96",
      "64:ff9b:1::/48",
      "100::/64",
      "2001::/23",
      "2001:db8::/32",
      "2002::/16",
      "3fff::/20",
      "5f00::/16"
    )
  ]
]

const within = (ranges: ReadonlyArray<IpNetwork.IpNetwork>, address: NetAddress.IpAddress) =>
  ranges.some((range) => IpNetwork.contains(range, address))

/** An IPv4 address that is written as an IPv6 one reaches the same machine. */
const canonical = (address: NetAddress.IpAddress): NetAddress.IpAddress => {
  if (!NetAddress.isIpv6Address(address)) return address
  const [a, b, c, d, e, f, high, low] = NetAddress.ipv6ToSegments(address)
  if ((a | b | c | d | e) !== 0 || f !== 0xffff) return address
  return Result.getOrElse(
    NetAddress.ipv4FromOctets([high >> 8, high & 255, low >> 8, low & 255]),
    () => address
  )
}

/** Undefined: it is no address. */
const parse = (text: string): NetAddress.IpAddress | undefined => {
  const parsed = NetAddress.ipFromString(text)
  return Result.isSuccess(parsed) ? canonical(parsed.success) : undefined
}

/** Ranges in CIDR notation. Dies of one that is none: settings are checked when they are read. */
export const rangesOf = (texts: ReadonlyArray<string>): ReadonlyArray<IpNetwork.IpNetwork> =>
  networks(...texts)

export const isRange = (text: string): boolean => Result.isSuccess(IpNetwork.fromString(text))

export const isLoopback = (text: string): boolean => {
  const address = parse(text)
  return address !== undefined && within(loopback, address)
}

/** Why this address may not be reached; undefined: it may. */
export const refusal = (text: string, allowed: ReadonlyArray<IpNetwork.IpNetwork>): string | undefined => {
  const address = parse(text)
  // Fails closed: a resolver may answer with a zone, which only a link-local address has.
  if (address === undefined) return "no address that can be judged"
  if (within(never, address)) return "a link-local or metadata address, which no setting opens"
  if (within(allowed, address)) return undefined
  return special.find(([, ranges]) => within(ranges, address))?.[0]
}
