/** Connections that this machine has made to addresses, as the kernel lists them (proc(5), /proc/net/tcp). */
import * as fs from "node:fs/promises"
import * as Effect from "effect/Effect"

const established = "01"
const synSent = "02"

/** As the kernel writes an IPv4 address: its bytes in the order of the machine, which is little-endian. */
const inHex = (address: string) =>
  address
    .split(".")
    .toReversed()
    .map((part) => Number(part).toString(16).toUpperCase().padStart(2, "0"))
    .join("")

export const connectionsIn = (
  listing: string,
  addresses: ReadonlyArray<string>
): ReadonlyMap<string, number> => {
  const counts = new Map(addresses.map((address): [string, number] => [address, 0]))
  const byHex = new Map(addresses.map((address): [string, string] => [inHex(address), address]))
  for (const line of listing.split("\n").slice(1)) {
    const [, , remote = "", state = ""] = line.trim().split(/\s+/)
    const address = byHex.get(remote.slice(0, 8))
    if (address !== undefined && (state === established || state === synSent))
      counts.set(address, (counts.get(address) ?? 0) + 1)
  }
  return counts
}

/** Of each of the addresses; where the kernel does not tell, there are none. */
export const connectionsTo = (addresses: ReadonlyArray<string>) =>
  addresses.length === 0
    ? Effect.succeed<ReadonlyMap<string, number>>(new Map())
    : Effect.map(
        Effect.orElseSucceed(
          Effect.tryPromise(() => fs.readFile("/proc/net/tcp", "utf8")),
          () => ""
        ),
        (listing) => connectionsIn(listing, addresses)
      )
