/**
 * A network for each container, so that no two of them meet. Its bridge has a name by which the host's firewall knows
 * it: what comes from there reaches neither this machine (but for name look-ups) nor the addresses at which clouds
 * answer for a machine's credentials.
 */
import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as Effect from "effect/Effect"
import { helperEnvironment } from "../host/helper-environment.ts"
import { ContainerError } from "./error.ts"

/** Bridges of ours; the names of interfaces have 15 characters at most. */
const prefix = "svcx"
/** Podman's own range: it looks whether the host uses a part of it. */
const base = 0x0a59_0000
const slots = 4096

/** Everything but look-ups of names. */
const butNames = [
  ["!", "-p", "udp"],
  ["-p", "udp", "!", "--dport", "53"]
] as const

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

/**
 * Each stands by itself, so it matters neither in which order they are nor what others put before them: these tables
 * are passed before the one in which Podman's plug-in for firewalls lets containers out, and what is dropped is gone.
 * Look-ups of names are let through to anywhere, because some clouds answer them at a link-local address.
 */
const rules: ReadonlyArray<readonly [table: string, chain: string, ...match: ReadonlyArray<string>]> = [
  // Where the container means to go, whatever other rules make of that; below, where it really comes out.
  ...["169.254.0.0/16", "100.100.100.200/32"].flatMap((metadata) =>
    butNames.map((what) => ["raw", "PREROUTING", "-i", `${prefix}+`, "-d", metadata, ...what] as const)
  ),
  ...butNames.map((what) => ["mangle", "INPUT", "-i", `${prefix}+`, ...what] as const),
  ["mangle", "FORWARD", "-i", `${prefix}+`, "-o", `${prefix}+`]
]

/** Containers have no addresses of this version but those that every interface gives itself. */
const rules6: typeof rules = [["raw", "PREROUTING", "-i", `${prefix}+`]]

const said = (program: string, args: ReadonlyArray<string>): Promise<string | undefined> =>
  new Promise((resolve) =>
    execFile(
      program,
      args,
      { timeout: 10_000, env: helperEnvironment(), maxBuffer: 64 * 1024 * 1024 },
      (error, stdout) => resolve(error === null ? stdout : undefined)
    )
  )
const iptables = (...args: ReadonlyArray<string>) => said("iptables", ["-w", "5", ...args])

/**
 * Puts the rules where they are missing. False: this process may not, or iptables or ip6tables is missing. `within`: a
 * command that runs another one in a network of its own.
 */
export const guardHost = (within: ReadonlyArray<string> = []): Effect.Effect<boolean> =>
  Effect.promise(async () => {
    for (const [name, missing] of [
      ["iptables", rules] as const,
      ["ip6tables", hasIpv6() ? rules6 : []] as const
    ])
      for (const [table, chain, ...match] of missing) {
        const [program = name, ...args] = [...within, name, "-w", "5", "-t", table]
        const rule = [chain, ...match, "-j", "DROP"]
        if ((await said(program, [...args, "-C", ...rule])) !== undefined) continue
        if ((await said(program, [...args, "-I", ...rule])) === undefined) return false
      }
    return true
  })

/** Nobody's containers run where they would reach this machine, or the credentials that a cloud gives it. */
export const unguarded = new ContainerError({
  reason: "HostDependencyMissing",
  message:
    "The firewall rules for containers cannot be set: that takes root, iptables and ip6tables. Where something else keeps containers from this machine and from metadata services, set SVC_EXECUTION_FIREWALL=off"
})

/** Whether the kernel has that version at all. */
export const hasIpv6 = (): boolean => fs.existsSync("/proc/sys/net/ipv6")

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
    const listing = (await iptables("-S", chain)) ?? ""
    for (const [, ...rule] of rulesOfGone(listing, (bridge) => fs.existsSync(`/sys/class/net/${bridge}`))) {
      // Somebody else may have been faster.
      if ((await iptables("-D", ...rule)) !== undefined) count++
    }
  }
  return count
})
