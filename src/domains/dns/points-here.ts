/**
 * Whether a host name leads to the managed address of an environment: by CNAME records, each of which is asked for, or,
 * where there can be none (at the apex of a zone) or a name server flattens them, by addresses that are all the edge's.
 */
import * as Effect from "effect/Effect"
import { type DnsResolver, type DnsUnknown, plainName } from "./Resolver.ts"

export type Direction =
  | { readonly _tag: "Here"; readonly by: "cname" | "addresses" }
  /** A sentence for users that says where it leads instead. */
  | { readonly _tag: "Elsewhere"; readonly message: string }

export interface Destination {
  /** The managed address that a CNAME has to name. */
  readonly target: string
  /** Names at or below it are addresses of environments. */
  readonly appsDomain: string
  /** Addresses of the edge. Empty: those that `target` has. */
  readonly addresses: ReadonlyArray<string>
}

/** CNAME records one after another. */
const longestChain = 8

const elsewhere = (message: string): Direction => ({ _tag: "Elsewhere", message })

export const pointsHere = Effect.fnUntraced(function* (
  resolver: DnsResolver,
  hostname: string,
  { target, appsDomain, addresses }: Destination
): Effect.fn.Return<Direction, DnsUnknown> {
  const seen = new Set([hostname])
  let name = hostname
  let exists = false
  for (;;) {
    const answer = yield* resolver.cname(name)
    exists ||= answer.exists
    const [first, another] = answer.records
    if (first === undefined) break
    if (another !== undefined) return elsewhere(`${named(name)} has more than one CNAME record; keep one`)
    name = plainName(first)
    if (name === target) return { _tag: "Here", by: "cname" }
    // An address alone does not say which environment is meant, and this says that another one is.
    if (isAtOrBelow(name, appsDomain))
      return elsewhere(
        `Its CNAME record leads to ${named(name)}, which is the address of another environment; it has to lead to ${target}`
      )
    if (seen.has(name)) return elsewhere(`Its CNAME records form a circle at ${named(name)}`)
    if (seen.size > longestChain)
      return elsewhere(
        `Its CNAME records lead on more than ${longestChain} times; use one that names ${target}`
      )
    seen.add(name)
  }
  const found = yield* resolver.addresses(name)
  if (found.records.length === 0) {
    if (name !== hostname)
      return elsewhere(
        `Its CNAME record leads to ${named(name)}, which has no address; it has to lead to ${target}`
      )
    return elsewhere(
      exists || found.exists
        ? `${hostname} has neither a CNAME record nor an address yet`
        : `${hostname} is not in DNS yet (NXDOMAIN)`
    )
  }
  const ours = new Set(
    (addresses.length > 0 ? addresses : (yield* resolver.addresses(target)).records).map(canonical)
  )
  const others = found.records.filter((address) => !ours.has(canonical(address)))
  if (others.length === 0) return { _tag: "Here", by: "addresses" }
  const foreign = others.slice(0, 4).join(", ")
  return elsewhere(
    others.length < found.records.length
      ? `Some of its addresses are not this platform's: ${foreign}. Remove these A or AAAA records`
      : `It has ${others.length === 1 ? "the address" : "the addresses"} ${foreign}, which ${others.length === 1 ? "is" : "are"} not this platform's`
  )
})

export const isAtOrBelow = (name: string, domain: string): boolean =>
  name === domain || name.endsWith(`.${domain}`)

/** One way to write an address. */
const canonical = (address: string): string =>
  address.includes(":") && URL.canParse(`http://[${address}]`)
    ? new URL(`http://[${address}]`).hostname
    : address

/** A name from an answer, which may hold any byte, as far as it can be shown. */
const named = (name: string): string => name.replace(/[^a-z0-9._*-]/g, "?") || "the root"
