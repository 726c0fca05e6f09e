/**
 * What a container of an environment reaches of this machine: services that listen on loopback, each under its own port at
 * one address that no interface has. A rule for each leads from the container's bridge to where the service listens
 * (destination NAT), so servers need not know of it, and what has no rule is dropped (`network.ts`). The rules of a bridge
 * are changed in one transaction, which fails as a whole when another process was faster; those of other bridges, whoever
 * made them, are left alone.
 */
import * as fs from "node:fs/promises"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { codeOf } from "../error-code.ts"
import { ContainerError } from "./error.ts"
import { type Firewall, firewall, repeatedUntilDone, restore } from "./iptables.ts"
import { serviceChain } from "./network.ts"
import type { ReachableService } from "./types.ts"

const { table, chain } = serviceChain

/** As `iptables -S` prints it, so that comparing lines is enough. */
const lineOf = (bridge: string, { address, port }: ReachableService) =>
  `-A ${chain} -i ${bridge} -p tcp -m tcp --dport ${port} -j DNAT --to-destination ${address}:${port}`

/** Of bridges, by their names: to which services each leads. */
export type Leads = ReadonlyMap<string, ReadonlyArray<ReachableService>>

const bridgeIn = new RegExp(`^-A ${chain} -i (\\S+) `)

/** Each of these bridges leads to exactly its services. No services: nothing is left of it. */
export const leadTo = Effect.fnUntraced(function* (leads: Leads, host: Firewall = firewall()) {
  if (leads.size === 0) return
  const wanted = new Set(
    [...leads].flatMap(([bridge, services]) => services.map((service) => lineOf(bridge, service)))
  )
  const attempt = Effect.promise(async () => {
    const listing = await host.said("iptables", ["-t", table, "-S", chain])
    // A chain that is not there has no rules.
    if (listing === undefined && wanted.size === 0) return true
    const found = (listing ?? "").split("\n").filter((line) => leads.has(bridgeIn.exec(line)?.[1] ?? ""))
    return restore(
      host,
      "iptables",
      changes(wanted, found).map((line) => [table, line])
    )
  })
  const done = yield* repeatedUntilDone(attempt)
  if (done) return
  return yield* new ContainerError({
    reason: "Failed",
    message: "The firewall rules that lead containers to services cannot be set"
  })
})

/**
 * Lines of `iptables-restore` that make the wanted rules of those that were found. A rule that two processes have added is
 * there twice: all of its copies are removed and one is added, so that of two processes that do so one fails and looks
 * again. If each removed one copy, none would be left.
 */
const changes = (wanted: ReadonlySet<string>, found: ReadonlyArray<string>): ReadonlyArray<string> => {
  const copies = (line: string) => found.filter((one) => one === line).length
  return [
    ...found.filter((line) => !wanted.has(line) || copies(line) > 1).map((line) => line.replace("-A", "-D")),
    // At the head: the last rule of the chain keeps what is led nowhere from the host's own rules.
    ...[...wanted].filter((line) => copies(line) !== 1).map((line) => line.replace("-A", "-I"))
  ]
}

/**
 * Lets what comes from this bridge be led to loopback addresses, which the kernel refuses otherwise. Waits for the bridge:
 * Podman makes it while it starts the container. On this bridge alone; what is sent to such addresses is dropped before.
 */
export const admitLoopback = (bridge: string): Effect.Effect<void, ContainerError> =>
  Effect.tryPromise({
    try: async () => {
      const file = `/proc/sys/net/ipv4/conf/${bridge}/route_localnet`
      // Written only where need be: this process may be one that must not.
      if ((await fs.readFile(file, "utf8")).trim() !== "1") await fs.writeFile(file, "1")
    },
    catch: (cause) => cause
  }).pipe(
    Effect.retry({ while: (cause) => codeOf(cause) === "ENOENT", schedule: Schedule.spaced("5 millis") }),
    Effect.mapError(
      (cause) =>
        new ContainerError({
          reason: "HostDependencyMissing",
          message: `The bridge ${bridge} cannot lead to services of this machine (route_localnet): ${cause instanceof Error ? cause.message : String(cause)}`,
          cause
        })
    )
  )
