/**
 * Containers on this host, over the Docker Engine API (Docker, or Podman's service of the same API): looking at one,
 * and the single acts that change one. Which act is due is the reconciler's matter.
 *
 * Containers are bound hard: no capabilities, no way to get any, limits of memory, processor and processes, a network
 * of their own, nothing of the host mounted. Nothing waits for an engine for ever.
 */
import * as fs from "node:fs"
import * as os from "node:os"
import Docker from "dockerode"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Semaphore from "effect/Semaphore"
import type * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { outside } from "#src/engine/outside.ts"
import { ContainerError, containerError } from "./container-error.ts"
import { type LogPiece, logPieces } from "./container-logs.ts"
import { endedForMemory } from "./container-memory.ts"
import { forgetGoneNetworks, guardHost, networkOf } from "./container-network.ts"
import {
  type EnginePlace,
  findEngine,
  missing,
  ownIsRunning,
  startOwn,
  stopOwn
} from "./container-service.ts"
import { Host } from "./Host.ts"

export { ContainerError, type LogPiece }

export interface Container {
  readonly id: string
  readonly state: "created" | "running" | "exited"
  readonly startedAt: Date | undefined
  readonly finishedAt: Date | undefined
  readonly exitCode: number
  readonly outOfMemory: boolean
}

export interface ContainerPlan {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  /** Id of an image that was pulled. */
  readonly image: string
  /** Program and arguments: whatever the image would run by itself is not. */
  readonly command: ReadonlyArray<string>
  readonly env: Redacted.Redacted<Readonly<Record<string, string>>>
  readonly cpus: number
  /** Weight against others when the processor is short. */
  readonly cpuShares: number
  readonly memoryMb: number
  /** Another runtime than the engine's. */
  readonly runtime: string | undefined
}

export interface PullRequest {
  readonly reference: string
  readonly credentials:
    | {
        readonly registry: string
        readonly username: string
        readonly password: Redacted.Redacted
      }
    | undefined
}

export interface PulledImage {
  readonly id: string
  readonly digest: string | null
}

export type EngineState =
  | { readonly _tag: "Ready" }
  /** `startable`: it is ours to start. */
  | { readonly _tag: "Down"; readonly startable: boolean; readonly message: string }
  | { readonly _tag: "Missing"; readonly message: string }

type Act<A = void> = Effect.Effect<A, ContainerError>

export class ContainerEngine extends Context.Service<
  ContainerEngine,
  {
    readonly state: Effect.Effect<EngineState>
    /** Starts the engine that is ours; one that runs already is success. */
    readonly start: Act
    /** None: the engine answered that it has no such container. */
    readonly inspect: (name: string) => Act<Option.Option<Container>>
    /** Fetches an image anew, so that only who may have it gets it. May take long. */
    readonly pull: (request: PullRequest) => Act<PulledImage>
    /** Makes the container and its network. It exists already: success. */
    readonly create: (plan: ContainerPlan) => Act
    readonly run: (name: string) => Act
    /** A container that has ended is success. */
    readonly signal: (name: string, signal: "SIGTERM" | "SIGKILL") => Act
    /** Removes the container, by force when it runs, and its network. Nothing there is success. */
    readonly remove: (name: string) => Act
    /** Lets go of what removed networks have left in the firewall. */
    readonly forgetNetworks: Effect.Effect<void>
    /** Everything it printed, from the start, and what it prints while it runs. */
    readonly logs: (name: string) => Stream.Stream<LogPiece, ContainerError>
    /** Names of containers with this label, and the value they have for `of`. */
    readonly list: (label: string, of: string) => Act<ReadonlyArray<{ name: string; value: string }>>
    /** Ends the containers with this label, and the engine if it is ours. `forGood` removes them as well. */
    readonly stopAll: (label: string, forGood: boolean) => Act
  }
>()("svc/infra/ContainerEngine") {
  static readonly layer = Layer.effect(
    ContainerEngine,
    Effect.gen(function* () {
      const host = yield* Host
      const { containerSocket } = yield* AppConfig
      const starting = yield* Semaphore.make(1)
      const tidying = yield* Semaphore.make(1)
      const clients = new Map<string, Docker>()
      const clientOf = ({ socket }: EnginePlace) => {
        const client = clients.get(socket) ?? new Docker({ socketPath: socket })
        clients.set(socket, client)
        return client
      }
      const place = Effect.flatMap(findEngine(host, containerSocket), (found) =>
        Option.isSome(found) ? Effect.succeed(found.value) : Effect.fail(missing)
      )
      /** One call, bounded in time. */
      const call = <A>(
        what: string,
        body: (docker: Docker, signal: AbortSignal) => Promise<A>,
        duration: Duration.Input = "20 seconds"
      ) =>
        Effect.flatMap(place, (place) =>
          Effect.tryPromise({
            try: (signal) => body(clientOf(place), signal),
            catch: containerError(what)
          }).pipe(
            Effect.timeoutOrElse({
              duration,
              orElse: () =>
                new ContainerError({
                  reason: "Unreachable",
                  message: `${what}: the container engine did not answer in ${Duration.toSeconds(duration)} s`
                })
            })
          )
        )
      const ignoring =
        (...reasons: ReadonlyArray<ContainerError["reason"]>) =>
        <A>(self: Act<A>): Act =>
          Effect.catchIf(
            Effect.asVoid(self),
            (error) => reasons.includes(error.reason),
            () => Effect.void
          )

      // Not for its version: to tell that, Podman asks the host's package manager about each of its parts.
      const ping = call("Asking the container engine", (docker) => docker.ping(), "5 seconds")
      const state: Effect.Effect<EngineState> = Effect.matchEffect(ping, {
        onSuccess: () => Effect.succeed<EngineState>({ _tag: "Ready" }),
        onFailure: ({ reason, message }) =>
          reason === "HostDependencyMissing"
            ? Effect.succeed<EngineState>({ _tag: "Missing", message })
            : Effect.match(place, {
                onSuccess: ({ own }): EngineState => ({
                  _tag: "Down",
                  startable: own !== undefined,
                  message: "The container engine does not answer"
                }),
                onFailure: ({ message }): EngineState => ({ _tag: "Missing", message })
              })
      })

      const start = Effect.gen(function* () {
        const found = yield* place
        if ((yield* state)._tag === "Ready") return
        const { own } = found
        if (own === undefined)
          return yield* new ContainerError({
            reason: "Unreachable",
            message: `The container engine at ${found.socket} does not answer`
          })
        if (!(yield* ownIsRunning(host, found.socket))) yield* startOwn(host, { ...found, own })
        yield* Effect.sleep("100 millis").pipe(
          Effect.andThen(state),
          Effect.repeat({ until: ({ _tag }) => _tag === "Ready" }),
          Effect.timeoutOrElse({
            duration: "20 seconds",
            orElse: () =>
              new ContainerError({
                reason: "Unreachable",
                message: `The container engine was started and does not answer; see podman.log in ${host.dataDir}/containers`
              })
          })
        )
      })

      /** A network of its own; with a piece of the address range that nobody uses. */
      const makeNetwork = Effect.fnUntraced(function* (
        name: string,
        attempt: number
      ): Effect.fn.Return<void, ContainerError> {
        const { bridge, subnet, gateway } = networkOf(name, attempt)
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
        const { reason, message } = made.failure
        if (reason === "Unreachable" || reason === "HostDependencyMissing") return yield* made.failure
        if (reason === "Conflict" && /name|exists/i.test(message) && !/subnet|pool|overlap/i.test(message))
          return
        if (attempt >= 16) return yield* made.failure
        return yield* makeNetwork(name, attempt + 1)
      })
      const warned = yield* Effect.cached(
        Effect.logWarning(
          "the firewall rules for containers could not be set (iptables, as root): they may reach this machine and metadata services"
        )
      )

      const create = Effect.fnUntraced(function* (plan: ContainerPlan) {
        if (!(yield* guardHost)) yield* warned
        yield* makeNetwork(plan.name, 0)
        const memory = plan.memoryMb * 1024 * 1024
        yield* call(
          "Making the container",
          (docker, abortSignal) =>
            docker.createContainer({
              name: plan.name,
              Image: plan.image,
              Entrypoint: [...plan.command],
              Cmd: [],
              Env: Object.entries(Redacted.value(plan.env)).map(([key, value]) => `${key}=${value}`),
              Labels: { ...plan.labels },
              AttachStdin: false,
              AttachStdout: false,
              AttachStderr: false,
              OpenStdin: false,
              Tty: false,
              HostConfig: {
                NetworkMode: plan.name,
                CapDrop: ["ALL"],
                SecurityOpt: ["no-new-privileges"],
                Privileged: false,
                ReadonlyRootfs: false,
                PidsLimit: 512,
                Memory: memory,
                MemorySwap: memory,
                NanoCpus: Math.round(plan.cpus * 1e9),
                CpuShares: plan.cpuShares,
                RestartPolicy: { Name: "no" },
                Ulimits: ulimits(),
                // More than is kept of it, so that the engine never drops what is still to be read.
                LogConfig: { Type: "json-file", Config: { "max-size": "100m" } },
                ...(plan.runtime === undefined ? {} : { Runtime: plan.runtime })
              },
              abortSignal
            }),
          "60 seconds"
        ).pipe(ignoring("Conflict"))
      })

      const forgetNetworks = Effect.asVoid(tidying.withPermit(forgetGoneNetworks))

      const remove = Effect.fnUntraced(function* (name: string) {
        yield* call(
          "Removing the container",
          (docker, abortSignal) => docker.getContainer(name).remove({ force: true, v: true, abortSignal }),
          "60 seconds"
        ).pipe(ignoring("NotFound"))
        yield* call("Removing the container's network", (docker, abortSignal) =>
          docker.getNetwork(name).remove({ abortSignal })
        ).pipe(ignoring("NotFound"))
        yield* forgetNetworks
      })

      const signal = (name: string, signal: "SIGTERM" | "SIGKILL") =>
        call("Ending the container", (docker, abortSignal) =>
          docker.getContainer(name).kill({ signal, abortSignal })
        ).pipe(ignoring("NotFound", "Conflict"))

      const pull = Effect.fnUntraced(function* ({ reference, credentials }: PullRequest) {
        const what = `Fetching the image ${reference}`
        const authconfig =
          credentials === undefined
            ? {}
            : {
                authconfig: {
                  username: credentials.username,
                  password: Redacted.value(credentials.password),
                  serveraddress: credentials.registry
                }
              }
        yield* call(
          what,
          async (docker, abortSignal) => {
            const stream = await docker.pull(reference, { ...authconfig, abortSignal })
            // What goes wrong after the first word is told in the stream.
            await new Promise<void>((resolve, reject) => {
              abortSignal.addEventListener("abort", () => reject(new Error("stopped")))
              docker.modem.followProgress(stream, (error, output) => {
                const fault = error ?? output.find((line) => line.error !== undefined)?.error
                if (fault === undefined || fault === null) resolve()
                else
                  reject(
                    Object.assign(new Error(fault instanceof Error ? fault.message : String(fault)), {
                      statusCode: 500
                    })
                  )
              })
            })
          },
          "30 minutes"
        )
        const image = yield* call(what, (docker) => docker.getImage(reference).inspect())
        const digest = image.RepoDigests.map((text) => text.split("@")[1]).find((text) => text !== undefined)
        return { id: image.Id, digest: digest ?? null }
      })

      const list = (label: string, of: string) =>
        Effect.map(
          call("Listing containers", (docker, abortSignal) =>
            docker.listContainers({ all: true, filters: { label: [label] }, abortSignal })
          ),
          (containers) =>
            containers.flatMap(({ Names: [name], Labels }) => {
              const value = Labels[of]
              return name === undefined || value === undefined
                ? []
                : [{ name: name.replace(/^\//, ""), value }]
            })
        )

      return ContainerEngine.of({
        state: outside("containers.state", "read")(state),
        start: outside("containers.startEngine", "write")(starting.withPermit(start)),
        inspect: (name) =>
          outside(
            "containers.inspect",
            "read"
          )(
            call("Looking at the container", (docker, abortSignal) =>
              docker.getContainer(name).inspect({ abortSignal })
            ).pipe(
              Effect.map((info) => Option.some(withKernel(toContainer(info)))),
              Effect.catchIf(
                ({ reason }) => reason === "NotFound",
                () => Effect.succeed(Option.none<Container>())
              )
            )
          ),
        pull: (request) => outside("containers.pull", "write")(pull(request)),
        create: (plan) => outside("containers.create", "write")(create(plan)),
        run: (name) =>
          outside(
            "containers.run",
            "write"
          )(
            call(
              "Starting the container",
              (docker, abortSignal) => docker.getContainer(name).start({ abortSignal }),
              "60 seconds"
            ).pipe(ignoring("Conflict"))
          ),
        signal: (name, which) => outside("containers.signal", "write")(signal(name, which)),
        remove: (name) => outside("containers.remove", "write")(remove(name)),
        forgetNetworks: outside("containers.forgetNetworks", "write")(forgetNetworks),
        logs: (name) => logPieces(Effect.map(place, clientOf), name),
        list: (label, of) => outside("containers.list", "read")(list(label, of)),
        stopAll: (label, forGood) =>
          Effect.gen(function* () {
            const found = yield* Effect.option(place)
            if (Option.isNone(found)) return
            const { own, socket } = found.value
            if ((yield* state)._tag !== "Ready") {
              // What was started once may have left containers that run on; without the engine nobody can end them.
              if (own === undefined || !fs.existsSync(`${host.dataDir}/containers`)) return
              yield* start
            }
            const names = (yield* list(label, label.split("=")[0] ?? label)).map(({ name }) => name)
            const until = (yield* Clock.currentTimeMillis) + 10_000
            yield* Effect.forEach(names, (name) => signal(name, "SIGTERM"), { concurrency: 8, discard: true })
            for (const name of names) {
              while ((yield* Clock.currentTimeMillis) < until) {
                const info = yield* Effect.option(
                  call("Looking", (docker) => docker.getContainer(name).inspect())
                )
                if (Option.isNone(info) || toContainer(info.value).state !== "running") break
                yield* Effect.sleep("200 millis")
              }
              yield* forGood ? remove(name) : signal(name, "SIGKILL")
            }
            if (own !== undefined) yield* stopOwn(host, socket, forGood)
          })
      })
    })
  )
}

const toContainer = ({ Id, State }: Docker.ContainerInspectInfo): Container => {
  const at = (text: string) => (/^[1-9]/.test(text) && Date.parse(text) > 0 ? new Date(text) : undefined)
  const status: string = State.Status
  return {
    id: Id,
    state: /^(created|configured|initialized)$/.test(status)
      ? "created"
      : State.Running || /^(running|paused|stopping|restarting)$/.test(status)
        ? "running"
        : "exited",
    startedAt: at(State.StartedAt),
    finishedAt: at(State.FinishedAt),
    exitCode: State.ExitCode,
    outOfMemory: State.OOMKilled
  }
}

/** Podman on version 1 of control groups misses that a container ran out of memory when it ends at that moment. */
const withKernel = (container: Container): Container =>
  container.state === "exited" && container.exitCode === 137 && !container.outOfMemory
    ? { ...container, outOfMemory: endedForMemory(container.id) }
    : container

/**
 * At most what this process itself may: an engine without the privilege to raise limits fails to start otherwise. And
 * less than Podman's service leaves itself; what a container may really have is bound by its group of processes.
 */
const mostOfEach = 16_384

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
