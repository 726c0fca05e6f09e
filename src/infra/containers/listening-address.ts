/** Where something of this machine listens, by the setting of its host: what the firewall can lead to. */
import { lookup } from "node:dns/promises"
import * as net from "node:net"
import * as Effect from "effect/Effect"
import type * as Option from "effect/Option"

/** None: at no IPv4 address, or nobody knows the name. */
export const listeningAddress = (host: string): Effect.Effect<Option.Option<string>> => {
  if (host === "0.0.0.0" || host === "::" || host === "[::]") return Effect.succeedSome("127.0.0.1")
  if (net.isIPv4(host)) return Effect.succeedSome(host)
  if (net.isIP(host.replace(/^\[|\]$/g, "")) !== 0) return Effect.succeedNone
  return Effect.tryPromise(() => lookup(host, { family: 4 })).pipe(
    Effect.timeout("5 seconds"),
    Effect.map(({ address }) => address),
    Effect.option
  )
}
