/** Where something of this machine listens, by the setting of its host: what the firewall can lead to. */
import { lookup } from "node:dns/promises"
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { HostError } from "../host/Host.ts"

/** None: it is an address of IPv6. A name that is not found fails: name servers may be away, and servers go on listening. */
export const listeningAddress = (host: string): Effect.Effect<Option.Option<string>, HostError> => {
  if (host === "0.0.0.0" || host === "::" || host === "[::]") return Effect.succeedSome("127.0.0.1")
  if (net.isIPv4(host)) return Effect.succeedSome(host)
  if (net.isIP(host.replace(/^\[|\]$/g, "")) !== 0) return Effect.succeedNone
  return Effect.tryPromise(() => lookup(host, { family: 4 })).pipe(
    Effect.timeout("5 seconds"),
    Effect.map(({ address }) => Option.some(address)),
    Effect.mapError(
      (cause) => new HostError({ message: `${host} has no IPv4 address that could be looked up`, cause })
    )
  )
}
