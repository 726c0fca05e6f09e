/**
 * A network for each container, so that no two of them meet. Its bridge has a name by which the host's firewall knows
 * it: what comes from there reaches neither this machine (but for name look-ups) nor the addresses at which clouds
 * answer for a machine's credentials.
 */
import { execFile, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as Effect from "effect/Effect"
import { helperEnvironment } from "./helper-environment.ts"

/** Bridges of ours; the names of interfaces have 15 characters at most. */
const prefix = "svcx"
/** Podman's own range: it looks whether the host uses a part of it. */
const base = 0x0a59_0000
const slots = 4096

/** The n-th try to find a free piece for this container. */
export const networkOf = (name: string, attempt: number) => {
  const digest = createHash("sha256").update(`${name}/${attempt}`).digest()
  const address = base + (digest.readUInt32BE(0) % slots) * 16
  const dotted = (value: number) => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join(".")
  return {
    bridge: `${prefix}${digest.subarray(4, 9).toString("hex")}`,
    subnet: `${dotted(address)}/28`,
    gateway: dotted(address + 1)
  }
}

const rules: ReadonlyArray<readonly [chain: string, ...match: ReadonlyArray<string>]> = [
  ["INPUT", "-i", `${prefix}+`, "-j", "REJECT"],
  ["INPUT", "-i", `${prefix}+`, "-p", "udp", "--dport", "53", "-j", "ACCEPT"],
  ["FORWARD", "-i", `${prefix}+`, "-d", "169.254.0.0/16", "-j", "REJECT"],
  // Destinations that another rule sent back to this machine come by here as well.
  ["FORWARD", "-i", `${prefix}+`, "-o", `${prefix}+`, "-j", "REJECT"]
]

const iptables = (args: ReadonlyArray<string>): boolean =>
  spawnSync("iptables", ["-w", "5", ...args], {
    stdio: "ignore",
    timeout: 10_000,
    env: helperEnvironment()
  }).status === 0

/** Puts the rules where they are missing, ahead of all others. False: this process may not, or there is no iptables. */
export const guardHost: Effect.Effect<boolean> = Effect.sync(() =>
  rules.every(
    ([chain, ...match]) => iptables(["-C", chain, ...match]) || iptables(["-I", chain, "1", ...match])
  )
)

const said = (args: ReadonlyArray<string>): Promise<string | undefined> =>
  new Promise((resolve) =>
    execFile(
      "iptables",
      ["-w", "5", ...args],
      { timeout: 10_000, env: helperEnvironment(), maxBuffer: 64 * 1024 * 1024 },
      (error, stdout) => resolve(error === null ? stdout : undefined)
    )
  )

const isolation = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"]

/** Of the lines that `iptables -S` prints: those about a bridge of ours that is not there, as arguments that add them. */
export const rulesOfGone = (
  listing: string,
  exists: (bridge: string) => boolean
): ReadonlyArray<ReadonlyArray<string>> =>
  listing.split("\n").flatMap((line) => {
    const bridge = new RegExp(`^-A \\S+ (?:-i|-o) (${prefix}[0-9a-f]{10}) `).exec(line)?.[1]
    if (bridge === undefined || exists(bridge)) return []
    return [[...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? "")]
  })

/**
 * Podman's plug-in for firewalls sets two rules for each network and leaves them when it is removed. A bridge is there
 * before its rules are, so rules of one that is not there are of no use to anybody. Answers how many were removed.
 */
export const forgetGoneNetworks: Effect.Effect<number> = Effect.promise(async () => {
  let count = 0
  for (const chain of isolation) {
    const listing = (await said(["-S", chain])) ?? ""
    for (const [, ...rule] of rulesOfGone(listing, (bridge) => fs.existsSync(`/sys/class/net/${bridge}`))) {
      // Somebody else may have been faster.
      if ((await said(["-D", ...rule])) !== undefined) count++
    }
  }
  return count
})
