/** Where the host name of a domain has to lead, and how its owner is told so. */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import { parse } from "tldts"
import { settings as edgeSettings } from "#src/edge/settings.ts"
import { type Claim, challengeName } from "./Claims.ts"
import type { Destination } from "./dns/points-here.ts"

/** Addresses that stand for every address of a machine. */
const unspecified: ReadonlySet<string> = new Set(["0.0.0.0", "::"])

/** What leads to a managed address, with the addresses of the edge as the settings say them. */
export const destinations = Effect.map(edgeSettings, ({ appsDomain, host, publicAddresses }) => {
  const listening = net.isIP(host) !== 0 && !unspecified.has(host) ? [host] : []
  const addresses = publicAddresses.length > 0 ? publicAddresses : listening
  return (target: string): Destination => ({ target, appsDomain, addresses })
})

/** The DNS records to create. `claim` is absent as long as it is not known. */
export const instructionsOf = (
  hostname: string,
  { target, addresses }: Destination,
  claim: Claim | undefined
): string => {
  const isApex = parse(hostname, { allowPrivateDomains: true }).domain === hostname
  const shown = addresses.map((address) => `${net.isIPv6(address) ? "AAAA" : "A"} ${address}`).join(", ")
  const record = isApex
    ? `Create a record of the type ALIAS (also called ANAME, or CNAME flattening) for ${hostname} that names ${target}, since there can be no CNAME record at the top of a zone.${
        shown === ""
          ? ""
          : ` Where your DNS provider has none, create ${addresses.length === 1 ? "this record" : "these records"} instead: ${shown}.`
      }`
    : `Create the DNS record ${hostname} CNAME ${target}.`
  if (claim === undefined || claim.provedAge !== undefined || !(claim.contested || isApex)) return record
  const when = claim.contested
    ? "Another organization has used this name here before: create"
    : "Since addresses are shared, create"
  return `${record} ${when} the record ${challengeName(hostname)} TXT "${claim.challenge}" as well, to show that the name is yours.`
}
