/**
 * The addresses of a host that somebody else named, as far as requests may go there: for clients that make their
 * connections themselves. What they connect to is what was judged, because they are given nothing else.
 */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import type * as IpNetwork from "effect/net/IpNetwork"
import * as Schema from "effect/Schema"
import { refusal } from "#src/address-ranges.ts"
import { Names, ownAddresses } from "./names.ts"

/** Every address of the host is one that requests do not go to. */
export class AddressBlocked extends Schema.TaggedError<AddressBlocked>()("AddressBlocked", {
  message: Schema.String
}) {}

/** Never empty. A host without brackets and without a dot at its end. */
export const judgedAddresses = Effect.fnUntraced(function* (
  host: string,
  allowed: ReadonlyArray<IpNetwork.IpNetwork>
) {
  const found = net.isIP(host) === 0 ? (ownAddresses(host) ?? (yield* (yield* Names)(host))) : [host]
  const judged = found.map((address) => [address, refusal(address, allowed)] as const)
  const good = judged.flatMap(([address, why]) => (why === undefined ? [address] : []))
  if (good.length > 0) return good
  const [address, why] = judged[0] ?? [host, "no address"]
  return yield* new AddressBlocked({
    message: `${host}${address === host ? "" : ` (${address})`} is ${why}: requests do not go there (see SVC_OUTBOUND_ALLOW)`
  })
})
