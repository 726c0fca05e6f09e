/**
 * A network for each container, so that no two of them meet. Its bridge has a name by which the host's firewall knows
 * it. What comes from there reaches neither this machine (but for name look-ups) nor the addresses at which clouds answer
 * for a machine's credentials. From the network of an environment, what `services.ts` lets through is reached besides, and
 * this machine is answered: it calls apps.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { ContainerError } from "./error.ts"
import { ensureRules, type Firewall, firewall, type Rule, repeatedUntilDone, restore } from "./iptables.ts"

export type NetworkKind = "isolated" | "environment"

/** Bridges of ours begin with this; the names of interfaces have 15 characters at most. */
const kinds: Readonly<Record<NetworkKind, { readonly prefix: string }>> = {
  isolated: { prefix: "svcx" },
  environment: { prefix: "svca" }
}
/** Podman's own range. It looks whether the host uses a part of it, as it does of any. */
const isolatedRange = "10.89.0.0/16"
/** Pieces of 16 addresses in a range. */
const slots = 4096
const bridgesOf = (kind: NetworkKind) => `${kinds[kind].prefix}+`

export const bridgeOf = (kind: NetworkKind, name: string): string =>
  `${kinds[kind].prefix}${createHash("sha256").update(name).digest("hex").slice(0, 10)}`

/** The first two numbers of the addresses of a range that has 65,536 of them. */
const headOf = (range: string) => range.split(".").slice(0, 2).join(".")

/** The n-th try to find a free piece for this container; `environments`: the range of containers of environments. */
export const networkOf = (kind: NetworkKind, name: string, attempt: number, environments: string) => {
  const digest = createHash("sha256").update(`${name}/${attempt}`).digest()
  const address = (digest.readUInt32BE(0) % slots) * 16
  const head = headOf(kind === "environment" ? environments : isolatedRange)
  const dotted = (value: number) => `${head}.${value >>> 8}.${value & 255}`
  return { bridge: bridgeOf(kind, name), subnet: `${dotted(address)}/28`, gateway: dotted(address + 1) }
}

/** Whether a caller has the address of a container of an environment: no proxy of this machine has one. */
export const isOfEnvironment = (address: string, environments: string): boolean =>
  address.replace(/^::ffff:/i, "").startsWith(`${headOf(environments)}.`)

/** Everything but look-ups of names. */
const butNames = [
  ["!", "-p", "udp"],
  ["-p", "udp", "!", "--dport", "53"]
] as const

const isolated = bridgesOf("isolated")
const environment = bridgesOf("environment")
/** What comes from environments for this machine. */
const inbound = { table: "mangle", chain: "SVC-APPS" } as const
/** Which services of this machine an environment's network leads to: the rules of `services.ts`. */
export const serviceChain = { table: "nat", chain: "SVC-SERVICES" } as const

const drop = (table: Rule["table"], chain: string, ...match: ReadonlyArray<string>): Rule => ({
  table,
  chain,
  rule: [...match, "-j", "DROP"]
})

/**
 * Rules that drop stand each by itself, so it matters neither in which order they are nor what others put before them:
 * these tables are passed before the one in which Podman's plug-in for firewalls lets containers out, and what is dropped
 * is gone. Look-ups of names are let through to anywhere, because some clouds answer them at a link-local address.
 *
 * A chain of ours is whole before anything leads to it.
 */
const rulesFor = (
  servicesAddress: string | undefined,
  otherBridges: ReadonlyArray<string>
): ReadonlyArray<Rule> => {
  /** A connection whose first packet was sent there, and led on by a rule of the services' chain. */
  const ofServices =
    servicesAddress === undefined
      ? undefined
      : ["-m", "conntrack", "--ctstate", "DNAT", "--ctorigdst", servicesAddress]
  return [
    // Where the container means to go, whatever other rules make of that; below, where it really comes out.
    ...[isolated, environment].flatMap((bridges) =>
      ["169.254.0.0/16", "100.100.100.200/32"].flatMap((metadata) =>
        butNames.map((what) => drop("raw", "PREROUTING", "-i", bridges, "-d", metadata, ...what))
      )
    ),
    // The bridges of environments are led to loopback addresses by rules alone.
    drop("raw", "PREROUTING", "-i", environment, "-d", "127.0.0.0/8"),
    ...butNames.map((what) => drop("mangle", "INPUT", "-i", isolated, ...what)),
    ...[isolated, environment].flatMap((from) =>
      [isolated, environment, ...otherBridges].map((to) => drop("mangle", "FORWARD", "-i", from, "-o", to))
    ),
    { ...inbound, rule: ["-j", "DROP"], last: true },
    { ...inbound, rule: ["-p", "udp", "--dport", "53", "-j", "RETURN"] },
    {
      ...inbound,
      rule: ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "--ctdir", "REPLY", "-j", "RETURN"]
    },
    ...(ofServices === undefined || servicesAddress === undefined
      ? []
      : [
          { ...inbound, rule: [...ofServices, "-j", "RETURN"] },
          // Hosts whose own rules let in only what they name.
          {
            table: "filter" as const,
            chain: "INPUT",
            rule: ["-i", environment, ...ofServices, "-j", "ACCEPT"]
          },
          // What no rule leads to a service is for nobody: neither out there, nor where rules of the host's own lead.
          drop("mangle", "FORWARD", "-i", environment, "-d", `${servicesAddress}/32`),
          { ...serviceChain, rule: ["-j", "ACCEPT"], last: true as const },
          {
            table: "nat" as const,
            chain: "PREROUTING",
            rule: ["-i", environment, "-d", `${servicesAddress}/32`, "-j", serviceChain.chain]
          }
        ]),
    { table: "mangle", chain: "INPUT", rule: ["-i", environment, "-j", inbound.chain] }
  ]
}

/** Containers have no addresses of this version but those that every interface gives itself. */
const rules6: ReadonlyArray<Rule> = [isolated, environment].map((bridges) =>
  drop("raw", "PREROUTING", "-i", bridges)
)

/**
 * Puts the rules where they are missing. False: this process may not, or iptables or ip6tables is missing. The address is
 * the one under which environments reach services, if they do. What is connected to the other bridges is not reached either;
 * one that is made later is found when the next container is.
 */
export const guardHost = (
  servicesAddress: string | undefined,
  host: Firewall = firewall(),
  otherBridges: ReadonlyArray<string> = bridgesOfOthers()
): Effect.Effect<boolean> =>
  Effect.promise(
    async () =>
      (await ensureRules(host, "iptables", rulesFor(servicesAddress, otherBridges), [
        inbound,
        serviceChain
      ])) &&
      (!hasIpv6() || (await ensureRules(host, "ip6tables", rules6)))
  )

/** Bridges of this machine that lead to what runs on it, such as Docker's: all but ours and those of default routes. */
const bridgesOfOthers = (): ReadonlyArray<string> => {
  if (!fs.existsSync("/proc/net/route")) return []
  const outward = new Set(
    fs
      .readFileSync("/proc/net/route", "utf8")
      .split("\n")
      .map((line) => line.split(/\s+/))
      .flatMap(([name, destination, ...rest]) =>
        name !== undefined && destination === "00000000" && rest[5] === "00000000" ? [name] : []
      )
  )
  const isOurs = (name: string) => Object.values(kinds).some(({ prefix }) => name.startsWith(prefix))
  return fs
    .readdirSync("/sys/class/net")
    .filter((name) => !isOurs(name) && !outward.has(name) && fs.existsSync(`/sys/class/net/${name}/bridge`))
}

/** Nobody's containers run where they would reach this machine, or the credentials that a cloud gives it. */
export const unguarded = new ContainerError({
  reason: "HostDependencyMissing",
  message:
    "The firewall rules for containers cannot be set: that takes root, iptables and ip6tables. Where something else keeps containers from this machine and from metadata services, set SVC_EXECUTION_FIREWALL=off"
})

/** Whether the kernel has that version at all. */
export const hasIpv6 = (): boolean => fs.existsSync("/proc/sys/net/ipv6")

const ownBridge = new RegExp(
  `^-A (CNI-ISOLATION-STAGE-[12]|${serviceChain.chain}) (?:-i|-o) ((?:${kinds.isolated.prefix}|${kinds.environment.prefix})[0-9a-f]{10}) `
)

/** Of the lines that `iptables-save` prints: those about a bridge of ours that is not there, as lines that remove them. */
export const removalsOfGone = (
  listing: string,
  exists: (bridge: string) => boolean
): ReadonlyArray<readonly [Rule["table"], line: string]> =>
  listing.split("\n").flatMap((line) => {
    const [, chain, bridge] = ownBridge.exec(line) ?? []
    if (bridge === undefined || exists(bridge)) return []
    return [[chain === serviceChain.chain ? serviceChain.table : "filter", line.replace("-A", "-D")] as const]
  })

export const bridgeExists = (bridge: string) => fs.existsSync(`/sys/class/net/${bridge}`)

/**
 * Podman's plug-in for firewalls sets two rules for each network and leaves them when it is removed; and a process may be
 * killed before it has removed what led to services. A bridge is there before its rules are used, so rules of one that is
 * not there, or of the one that is named as removed, are of no use to anybody.
 */
export const forgetGoneNetworks = (removed?: string): Effect.Effect<void> => {
  const host = firewall()
  const attempt = Effect.promise(async () => {
    const listing = (await host.said("iptables-save", [])) ?? ""
    return restore(
      host,
      "iptables",
      removalsOfGone(listing, (bridge) => bridge !== removed && bridgeExists(bridge))
    )
  })
  // Somebody else may have removed one of them meanwhile. What stays is looked for again when the next network goes.
  return repeatedUntilDone(attempt)
}

/** Where the plug-ins of CNI, which older Podmans use, note the addresses that a network has given away. */
const addressNotes = "/var/lib/cni/networks"

/** Those notes stay when a network is removed. Newer engines make none. */
export const forgetAddresses = (network: string): Effect.Effect<void> =>
  Effect.ignore(
    Effect.tryPromise(() =>
      fs.promises.rm(path.join(addressNotes, network), { recursive: true, force: true })
    ),
    { log: "Debug" }
  )
