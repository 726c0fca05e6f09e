/**
 * What the firewall rules for containers hold back, in a network that stands for a host: Podman's own plug-ins make the
 * bridge, the container's network and their rules after ours, and what must not be reached really listens.
 */
import { spawn, spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { firewall } from "#src/infra/containers/iptables.ts"
import { guardHost, hasIpv6, networkOf } from "#src/infra/containers/network.ts"
import { leadTo } from "#src/infra/containers/services.ts"
import { eventually } from "#test/setup/wait.ts"

const run = (command: string, args: ReadonlyArray<string>, more: object = {}) => {
  const done = spawnSync(command, args, { encoding: "utf8", timeout: 120_000, ...more })
  if (done.status !== 0) throw new Error(`${command} ${args.join(" ")}: ${done.stdout}${done.stderr}`)
  return done.stdout
}
const ip = (line: string) => run("ip", line.split(" "))

const metadata = ["169.254.169.254", "100.100.100.200"]
const elsewhere = "192.0.2.1"
const name = `svc-guard-${randomBytes(4).toString("hex")}`
const { bridge, subnet, gateway } = networkOf("isolated", name, 0, "10.219.0.0/16")
const other = networkOf("isolated", `${name}-other`, 1, "10.219.0.0/16")
const appNetwork = networkOf("environment", name, 0, "10.219.0.0/16")
const servicesAddress = "198.19.255.1"

/** Two containers of different networks on a host, and a machine behind it that has the addresses of metadata services. */
const world = Effect.gen(function* () {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-net-"))
  const host = `${name}-h`
  const behind = `${name}-m`
  const first = `${name}-c`
  const second = `${name}-d`
  const app = `${name}-a`
  const guest = `${name}-g`
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      for (const each of [first, second, app, guest, host, behind]) spawnSync("ip", ["netns", "del", each])
      fs.rmSync(folder, { recursive: true, force: true })
    })
  )
  for (const each of [host, behind, first, second, app, guest]) {
    ip(`netns add ${each}`)
    ip(`-n ${each} link set lo up`)
  }
  ip(`-n ${host} link add out0 type veth peer name out0 netns ${behind}`)
  for (const [each, address] of [
    [host, "192.0.2.2/24"],
    [behind, `${elsewhere}/24`]
  ]) {
    ip(`-n ${each} addr add ${address} dev out0`)
    ip(`-n ${each} link set out0 up`)
  }
  for (const address of metadata) {
    ip(`-n ${behind} addr add ${address}/32 dev lo`)
    ip(`-n ${host} route add ${address}/32 via ${elsewhere}`)
  }
  ip(`-n ${behind} route add default via 192.0.2.2`)
  run("ip", ["netns", "exec", host, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

  /** As Podman does it for a network with a bridge of that name. */
  const attach = (container: string, network: { bridge: string; subnet: string; gateway: string }) => {
    const plugin = (type: string, config: object) =>
      run("ip", ["netns", "exec", host, `/usr/lib/cni/${type}`], {
        input: JSON.stringify({ cniVersion: "0.4.0", name: container, type, ...config }),
        env: {
          PATH: process.env["PATH"],
          CNI_COMMAND: "ADD",
          CNI_CONTAINERID: container,
          CNI_NETNS: `/run/netns/${container}`,
          CNI_IFNAME: "eth0",
          CNI_PATH: "/usr/lib/cni"
        }
      })
    const made = plugin("bridge", {
      bridge: network.bridge,
      isGateway: true,
      ipam: {
        type: "host-local",
        dataDir: path.join(folder, "ipam"),
        ranges: [[{ subnet: network.subnet, gateway: network.gateway }]],
        routes: [{ dst: "0.0.0.0/0" }]
      }
    })
    plugin("firewall", {
      backend: "iptables",
      ingressPolicy: "same-bridge",
      prevResult: JSON.parse(made)
    })
  }
  return { host, behind, first, second, app, guest, attach }
})

class World extends Context.Service<World, Effect.Success<typeof world>>()("test/World") {
  static readonly layer = Layer.effect(World, world)
}

/** Answers on a port, over the versions of the protocol that there are or at one address, until the test is over. */
const listening = (netns: string, port: number, address?: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const script = `import socket
s = ${
        address !== undefined
          ? `socket.create_server(("${address}", ${port}))`
          : hasIpv6()
            ? `socket.create_server(("::", ${port}), family=socket.AF_INET6, dualstack_ipv6=True)`
            : `socket.create_server(("0.0.0.0", ${port}))`
      }
print("up", flush=True)
while True: s.accept()[0].close()`
      const child = spawn("ip", ["netns", "exec", netns, "python3", "-c", script])
      await new Promise<void>((resolve, reject) => {
        child.stdout.once("data", () => resolve())
        child.once("exit", () => reject(new Error(`nobody listens in ${netns}`)))
      })
      return child
    }),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )

/** Those of the addresses that answer a container. */
const reached = (netns: string, port: number, addresses: ReadonlyArray<string>) => {
  const script = `import socket, sys, threading
def reach(address):
  try:
    family, kind, _, _, at = socket.getaddrinfo(address, ${port}, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as s:
      s.settimeout(2.5)
      s.connect(at)
    sys.stdout.write(address + chr(10))
  except OSError: pass
threads = [threading.Thread(target=reach, args=[a]) for a in sys.argv[1:]]
for t in threads: t.start()
for t in threads: t.join()`
  const found = run("ip", ["netns", "exec", netns, "python3", "-c", script, ...addresses]).split("\n")
  return addresses.filter((address) => found.includes(address))
}

const addressOf = (netns: string, device: string, version: "4" | "6") =>
  /inet6? ([^/]+)\//.exec(ip(`-n ${netns} -o -${version} addr show dev ${device}`))?.[1] ?? ""

/** Addresses of an interface count once the kernel has seen that nobody else has them. */
const linkLocal = Effect.fnUntraced(function* (netns: string, device: string) {
  yield* eventually(
    `${device} has a link-local address`,
    Effect.sync(() => ip(`-n ${netns} -o -6 addr show dev ${device}`)),
    (text) => text.includes("fe80") && !text.includes("tentative")
  )
  return addressOf(netns, device, "6")
})

layer(World.layer, { excludeTestServices: true, timeout: "3 minutes" })("rules for containers", (it) => {
  it.effect(
    "keep them from metadata services, from this machine by either protocol, and from each other",
    () =>
      Effect.gen(function* () {
        const { host, behind, first, second, guest, attach } = yield* World
        const within = ["ip", "netns", "exec", host]
        const programs = hasIpv6() ? ["iptables", "ip6tables"] : ["iptables"]
        const rules = () =>
          programs.flatMap((program) =>
            ["raw", "mangle", "nat"].map((table) =>
              run("ip", ["netns", "exec", host, program, "-t", table, "-S"])
            )
          )
        yield* listening(host, 8_001)
        yield* listening(behind, 8_001)
        yield* listening(second, 8_001)
        const unguarded = rules()

        // As Docker has it on a machine, with a container on it.
        ip(`-n ${host} link add docker9 type bridge`)
        ip(`-n ${host} addr add 172.29.9.1/24 dev docker9`)
        ip(`-n ${host} link set docker9 up`)
        ip(`-n ${host} link add vdocker9 type veth peer name eth9 netns ${guest}`)
        ip(`-n ${host} link set vdocker9 master docker9 up`)
        ip(`-n ${guest} addr add 172.29.9.2/24 dev eth9`)
        ip(`-n ${guest} link set eth9 up`)
        ip(`-n ${guest} route add default via 172.29.9.1`)
        yield* listening(guest, 8_001)
        assert.isTrue(yield* guardHost(servicesAddress, firewall(within), ["docker9"]))
        const guarded = rules()
        // Its rules come after ours, and ahead of what was in its table before.
        attach(first, { bridge, subnet, gateway })
        attach(second, other)
        assert.isTrue(yield* guardHost(servicesAddress, firewall(within), ["docker9"]))
        assert.deepStrictEqual(rules(), guarded)

        const outside = [...metadata, elsewhere]
        const inside = [
          gateway,
          other.gateway,
          "192.0.2.2",
          ...(hasIpv6() ? [`${yield* linkLocal(host, bridge)}%eth0`] : []),
          "172.29.9.2",
          addressOf(second, "eth0", "4")
        ]
        if (hasIpv6()) yield* linkLocal(first, "eth0")
        const all = [...outside, ...inside]
        assert.deepStrictEqual(reached(first, 8_001, all), [elsewhere])
        // A resolver on this machine may listen to names only.
        assert.isTrue(/udp.*! --dport 53/.test(guarded.join()))

        // Without the rules all of them answer: it is the rules that hold them back.
        for (const program of programs)
          for (const table of ["raw", "mangle", "nat"])
            for (const act of ["-F", "-X"]) run("ip", ["netns", "exec", host, program, "-t", table, act])
        assert.deepStrictEqual(rules(), unguarded)
        assert.deepStrictEqual(
          reached(first, 8_001, all),
          // The plug-in of Podman keeps networks apart by itself.
          all.filter((address) => address !== addressOf(second, "eth0", "4"))
        )
      }).pipe(Effect.scoped),
    300_000
  )

  it.effect(
    "lead an app to services of this machine that were named and to nothing else of it, and let it be called",
    () =>
      Effect.gen(function* () {
        const { host, behind, second, app, attach } = yield* World
        const rules = firewall(["ip", "netns", "exec", host])
        const lead = (...ports: ReadonlyArray<number>) =>
          leadTo(new Map([[appNetwork.bridge, ports.map((port) => ({ port, address: "127.0.0.1" }))]]), rules)
        attach(app, appNetwork)
        const appAddress = addressOf(app, "eth0", "4")
        const address = addressOf(second, "eth0", "4")
        for (const port of [8_002, 8_003]) yield* listening(host, port, "127.0.0.1")
        yield* listening(host, 8_004)
        for (const each of [behind, second, app]) yield* listening(each, 8_004)
        const byItself = (port: number) =>
          reached(app, port, [servicesAddress, appNetwork.gateway, "192.0.2.2"])

        assert.isTrue(yield* guardHost(servicesAddress, rules))
        // As the engine does it once there is the bridge.
        run("ip", [
          ...["netns", "exec", host, "sh", "-c"],
          `echo 1 > /proc/sys/net/ipv4/conf/${appNetwork.bridge}/route_localnet`
        ])
        yield* lead(8_002)
        assert.deepStrictEqual(byItself(8_002), [servicesAddress])
        assert.deepStrictEqual(byItself(8_003), [])
        const all = [...metadata, elsewhere, servicesAddress, appNetwork.gateway, "192.0.2.2", address]
        assert.deepStrictEqual(reached(app, 8_004, all), [elsewhere])
        // It answers this machine, and nobody of another network.
        assert.deepStrictEqual(reached(host, 8_004, [appAddress]), [appAddress])
        assert.deepStrictEqual(reached(second, 8_004, [appAddress]), [])

        // Another service has come, one is gone, and nothing is said twice.
        yield* lead(8_003)
        yield* lead(8_003, 8_003)
        assert.deepStrictEqual(byItself(8_002), [])
        assert.deepStrictEqual(byItself(8_003), [servicesAddress])
        const listed = () =>
          run("ip", ["netns", "exec", host, "iptables", "-t", "nat", "-S", "SVC-SERVICES"])
            .split("\n")
            .filter((line) => line.includes(appNetwork.bridge))
        assert.strictEqual(listed().length, 1)
        // Several processes miss the same rules and add them, then all of them see copies: one of each stays.
        const ports = [8_003, 8_005, 8_006]
        for (let round = 0; round < 2; round++) {
          yield* lead()
          yield* Effect.all([lead(...ports), lead(...ports), lead(...ports)], { concurrency: "unbounded" })
          yield* Effect.all([lead(...ports), lead(...ports), lead(...ports)], { concurrency: "unbounded" })
          yield* lead(...ports)
          assert.strictEqual(listed().length, 3)
        }
        for (const port of ports)
          run("ip", [
            ...[
              "netns",
              "exec",
              host,
              "iptables",
              "-t",
              "nat",
              "-I",
              "SVC-SERVICES",
              "-i",
              appNetwork.bridge
            ],
            ...["-p", "tcp", "--dport", String(port), "-j", "DNAT", "--to-destination", `127.0.0.1:${port}`]
          ])
        assert.strictEqual(listed().length, 6)
        yield* Effect.all([lead(...ports), lead(...ports)], { concurrency: "unbounded" })
        assert.strictEqual(listed().length, 3)
        yield* lead(8_003)

        // Whatever else the host leads somewhere, such as a port of its own, is none of the services.
        run("ip", [
          ...["netns", "exec", host, "iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp"],
          ...["--dport", "80", "-j", "REDIRECT", "--to-ports", "8004"]
        ])
        assert.deepStrictEqual(byItself(80), [])
        yield* lead()
        assert.deepStrictEqual(listed(), [])
        assert.deepStrictEqual(byItself(8_003), [])
      }).pipe(Effect.scoped),
    300_000
  )

  it.effect("are told to be missing where they cannot be set", () =>
    Effect.gen(function* () {
      assert.isFalse(yield* guardHost(servicesAddress, firewall(["env", "PATH=/nonexistent"])))
    })
  )
})
