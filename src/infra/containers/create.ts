/**
 * Making a container with a network of its own, and taking both away. Containers are bound hard: no capabilities, no
 * way to get any, limits of memory, processor and processes, nothing of the host mounted but single files to read.
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Semaphore from "effect/Semaphore"
import { backgroundGroupOf } from "./background.ts"
import { type Act, type Call, ignoring, whileItSays } from "./calls.ts"
import type { EngineInfo } from "./engine-info.ts"
import {
  bridgeOf,
  forgetAddresses,
  forgetGoneNetworks,
  hasIpv6,
  type NetworkKind,
  networkOf,
  unguarded
} from "./network.ts"
import type { ContainerPlan } from "./types.ts"
import { needsHostUsers, type UserNamespaces, usernsModeOf, whenUsedUp } from "./user-namespace.ts"

/** What ended a moment ago may still be mounted: Podman refuses then, and has removed nothing. */
const whileBusy = whileItSays("device or resource busy")

export interface MakingOptions {
  /** Puts the firewall rules where they are missing; false: they cannot be set. */
  readonly guarded: Effect.Effect<boolean>
  /** Where environments reach services; undefined: nowhere. */
  readonly services: { readonly name: string; readonly address: string } | undefined
  /** Of networks of environments. */
  readonly environmentRange: string
  readonly userNamespaces: UserNamespaces
  readonly info: Act<EngineInfo>
}

export const makeMaking = Effect.fnUntraced(function* (
  call: Call,
  { guarded, services, environmentRange, userNamespaces, info }: MakingOptions
) {
  const tidying = yield* Semaphore.make(1)
  const usernsMode = usernsModeOf(userNamespaces, info)
  const forgetNetworks = (removed?: string) => tidying.withPermit(forgetGoneNetworks(removed))

  const hasNetwork = (name: string) =>
    call("Looking for the container's network", (docker) => docker.getNetwork(name).inspect()).pipe(
      Effect.as(true),
      Effect.catchIf(
        ({ reason }) => reason === "NotFound",
        () => Effect.succeed(false)
      )
    )

  /** With a piece of the address range that nobody uses. */
  const makeNetwork = Effect.fnUntraced(function* (
    kind: NetworkKind,
    name: string,
    attempt: number
  ): Effect.fn.Return<void, Effect.Error<Act>> {
    const { bridge, subnet, gateway } = networkOf(kind, name, attempt, environmentRange)
    const made = yield* Effect.result(
      call("Making the container's network", (docker, abortSignal) =>
        docker.createNetwork({
          Name: name,
          Driver: "bridge",
          IPAM: { Driver: "default", Config: [{ Subnet: subnet, Gateway: gateway }] },
          Options: { "com.docker.network.bridge.name": bridge },
          abortSignal
        })
      )
    )
    if (made._tag === "Success") return
    const { reason } = made.failure
    if (reason === "Unreachable" || reason === "HostDependencyMissing") return yield* made.failure
    // Engines differ in how they say that it is there: a process that was killed before it made the container left it.
    if (yield* hasNetwork(name)) return
    if (attempt >= 16) return yield* made.failure
    return yield* makeNetwork(kind, name, attempt + 1)
  })

  const usernsOf = Effect.fnUntraced(function* ({ hostUsers }: ContainerPlan) {
    if (hostUsers !== true) return yield* usernsMode
    // An engine that maps users by itself does it for this one as well.
    if (userNamespaces === "required" && (yield* usernsMode) !== undefined) return yield* needsHostUsers
    return undefined
  })

  const create = Effect.fnUntraced(function* (plan: ContainerPlan) {
    if (!(yield* guarded)) return yield* unguarded
    const { network, tmpMb } = plan
    const UsernsMode = yield* usernsOf(plan)
    const CgroupParent = plan.background === true ? backgroundGroupOf(yield* info) : undefined
    if (network.kind !== "none") yield* makeNetwork(network.kind, plan.name, 0)
    const memory = plan.memoryMb * 1024 * 1024
    return yield* call(
      "Making the container",
      async (docker, abortSignal) => {
        const { id } = await docker.createContainer({
          name: plan.name,
          Image: plan.image,
          ...(plan.command === undefined ? {} : { Entrypoint: [...plan.command], Cmd: [] }),
          ...(plan.user === undefined ? {} : { User: plan.user }),
          ...(plan.workdir === undefined ? {} : { WorkingDir: plan.workdir }),
          Env: Object.entries(Redacted.value(plan.env)).map(([key, value]) => `${key}=${value}`),
          Labels: { ...plan.labels, ...labelsOf(plan) },
          AttachStdin: false,
          AttachStdout: false,
          AttachStderr: false,
          OpenStdin: false,
          Tty: false,
          HostConfig: {
            NetworkMode: network.kind === "none" ? "none" : plan.name,
            // Every interface gives itself an address of that version, by which this machine is reached.
            ...(hasIpv6() ? { Sysctls: { "net.ipv6.conf.all.disable_ipv6": "1" } } : {}),
            ...(UsernsMode === undefined ? {} : { UsernsMode }),
            CapDrop: ["ALL"],
            SecurityOpt: ["no-new-privileges"],
            Privileged: false,
            ...(tmpMb === undefined
              ? { ReadonlyRootfs: false }
              : { ReadonlyRootfs: true, Tmpfs: { "/tmp": `rw,nosuid,nodev,size=${tmpMb}m,mode=1777` } }),
            ...(network.kind === "environment" && services !== undefined
              ? { ExtraHosts: [`${services.name}:${services.address}`] }
              : {}),
            // The host's own files at places of the container, for it to read.
            Binds: Object.entries(plan.files ?? {}).map(([place, file]) => `${file}:${place}:ro,z`),
            ...(plan.oomScore === undefined ? {} : { OomScoreAdj: plan.oomScore }),
            PidsLimit: 512,
            Memory: memory,
            MemorySwap: memory,
            NanoCpus: Math.round(plan.cpus * 1e9),
            CpuShares: plan.cpuShares,
            ...(CgroupParent === undefined ? {} : { CgroupParent }),
            RestartPolicy: { Name: "no" },
            Ulimits: [...ulimits(), ...fileSize(plan.largestFileMb)],
            // More than is kept of it, so that the engine never drops what is still to be read.
            LogConfig: { Type: "json-file", Config: { "max-size": "100m" } },
            ...(plan.runtime === undefined ? {} : { Runtime: plan.runtime })
          },
          abortSignal
        })
        return id
      },
      "60 seconds"
    ).pipe(
      Effect.catchIf(
        ({ reason }) => reason === "Conflict",
        () => Effect.succeed(undefined)
      ),
      Effect.mapError((error) => (UsernsMode === undefined ? error : whenUsedUp(error)))
    )
  })

  const remove = Effect.fnUntraced(function* (name: string) {
    yield* call(
      "Removing the container",
      (docker, abortSignal) => docker.getContainer(name).remove({ force: true, v: true, abortSignal }),
      "60 seconds"
    ).pipe(Effect.retry(whileBusy), ignoring("NotFound"))
    yield* call("Removing the container's network", (docker, abortSignal) =>
      docker.getNetwork(name).remove({ abortSignal })
    ).pipe(ignoring("NotFound"))
    // Whether or not its bridge went with it.
    yield* forgetNetworks(bridgeOf("environment", name))
    yield* forgetAddresses(name)
  })

  return { create, remove, forgetNetworks: forgetNetworks() }
})

/** By which the containers of environments are found, whose services are looked at again and again. */
const labelsOf = ({ network }: ContainerPlan) =>
  network.kind === "environment"
    ? { "svc.organization": network.orgId, "svc.environment": network.environmentUid }
    : {}

/**
 * At most what this process itself may: an engine without the privilege to raise limits fails to start otherwise. And
 * less than Podman's service leaves itself; what a container may really have is bound by its group of processes.
 */
const mostOfEach = 16_384

const fileSize = (mebibytes: number | undefined) =>
  mebibytes === undefined
    ? []
    : [{ Name: "fsize", Soft: mebibytes * 1024 * 1024, Hard: mebibytes * 1024 * 1024 }]

const ulimits = () => {
  const text = os.platform() === "linux" ? fs.readFileSync("/proc/self/limits", "utf8") : ""
  return [
    ["nofile", "Max open files"],
    ["nproc", "Max processes"]
  ].flatMap(([Name = "", line = ""]) => {
    const [, hard] = new RegExp(`^${line}\\s+\\S+\\s+(\\S+)`, "m").exec(text) ?? []
    const most = Number(hard)
    return Number.isInteger(most)
      ? [{ Name, Soft: Math.min(most, mostOfEach), Hard: Math.min(most, mostOfEach) }]
      : []
  })
}
