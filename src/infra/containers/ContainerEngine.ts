/**
 * Containers on this host, over the Docker Engine API (Docker, or Podman's service of the same API): looking at one,
 * and the single acts that change one. Which act is due is the reconciler's matter. Nothing waits for an engine for ever.
 */
import * as fs from "node:fs"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Semaphore from "effect/Semaphore"
import type * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { Host } from "../host/Host.ts"
import { type ContainerPlace, makeArchives } from "./archives.ts"
import { weighBackground } from "./background.ts"
import { type Act, ignoring, makeCalls, whileItSays } from "./calls.ts"
import { makeMaking } from "./create.ts"
import { makeEngineInfo } from "./engine-info.ts"
import { ContainerError } from "./error.ts"
import { execute, type Program } from "./exec.ts"
import { defaultsOf, type ImageDefaults } from "./image-defaults.ts"
import { makeImages } from "./images.ts"
import { stateOf, toContainer, withKernel } from "./inspect.ts"
import { type LogPiece, logPieces } from "./logs.ts"
import { bridgeExists, bridgeOf, guardHost, unguarded } from "./network.ts"
import { ensureRuntime } from "./runtime.ts"
import { ownIsRunning, startOwn, stopOwn } from "./service.ts"
import { admitLoopback, leadTo } from "./services.ts"
import { makeStorage } from "./storage.ts"
import type {
  Container,
  ContainerPlan,
  EngineState,
  ListedContainer,
  PulledImage,
  PullRequest,
  ReachableService,
  RunningContainer
} from "./types.ts"

export type {
  Container,
  ContainerPlan,
  EngineState,
  ListedContainer,
  PulledImage,
  PullRequest,
  ReachableService
} from "./types.ts"
export { ContainerError, type LogPiece }

/** Podman says that a container has ended before it has given its address back, which starting it again asks for. */
const untilAddressIsFree = whileItSays("duplicate allocation")

export class ContainerEngine extends Context.Service<
  ContainerEngine,
  {
    /** Ready: it answers, and the firewall rules for containers are there. */
    readonly state: Effect.Effect<EngineState>
    /** Starts the engine that is ours; one that runs already is success. */
    readonly start: Act
    /** None: the engine answered that it has no such container. */
    readonly inspect: (name: string) => Act<Option.Option<Container>>
    /** Fetches an image anew, so that only who may have it gets it. May take long, but nothing may come for so long only. */
    readonly pull: (request: PullRequest, stallMs: number) => Act<PulledImage>
    /** Takes in an image, in the form of `docker save`. A stream that breaks off leaves none. */
    readonly load: (archive: NodeJS.ReadableStream) => Act
    /** Ids of all images, whoever fetched them. */
    readonly images: Act<ReadonlySet<string>>
    /**
     * Lets go of an image: of its names that are ours, and of itself if it has no others. Nothing is forced: what a
     * container is made of stays, and is `used`. `kept`: somebody else's name keeps it.
     */
    readonly removeImage: (id: string, isOurs: (name: string) => boolean) => Act<"gone" | "kept" | "used">
    /** Id of the image of that name, if this host has it. */
    readonly findImage: (name: string) => Act<Option.Option<string>>
    /** Unpacks a tar archive in a folder of the container, which need not run: a file's, or one in memory. */
    readonly putFile: (place: ContainerPlace, file: string) => Act
    readonly putArchive: (place: ContainerPlace, archive: Buffer) => Act
    /** Writes a file, or a folder with all that is in it, into a tar file; fails if that is more than `mostBytes`. */
    readonly take: (name: string, path: string, file: string, mostBytes: number) => Act
    /** What the image says of the containers that are made of it. */
    readonly imageDefaults: (id: string) => Act<ImageDefaults>
    /** Runs a program in a container that runs, and answers its exit code once it has ended. */
    readonly exec: <E>(
      name: string,
      program: Program,
      print: (pieces: ReadonlyArray<LogPiece>) => Effect.Effect<void, E>
    ) => Effect.Effect<number, ContainerError | E>
    /** Copies what is in a folder of one container into one of another; fails if that is more than `mostBytes`. */
    readonly copy: (from: ContainerPlace, to: ContainerPlace, mostBytes: number) => Act
    /**
     * Makes an image of the container, named `repository:tag`, and answers its id. The image keeps the variables and the
     * command that the container was made with, unless another one is given.
     */
    readonly commit: (name: string, image: string, command?: ReadonlyArray<string>) => Act<string>
    /** Makes the container and its network. Answers its id; undefined: one of this name exists already. */
    readonly create: (plan: ContainerPlan) => Act<string | undefined>
    /** Bytes that it has written to its file system. The engine goes through all of its files for it. */
    readonly written: (name: string) => Act<number>
    /** What is left of the disk on which the engine keeps images and containers. */
    readonly disk: Act<{ readonly freeBytes: number; readonly freeFiles: number }>
    /**
     * Starts it, unless the engine would hold it by another runtime than `runtime`. One in the network of an environment
     * reaches `services` and nothing else of this machine; they are read before the start, and again after it.
     */
    readonly run: <E = never>(
      name: string,
      options: {
        readonly runtime?: string | undefined
        /** It was made to work in the background. */
        readonly background?: true
        /** Undefined: the container is not in the network of an environment. */
        readonly services?: Effect.Effect<ReadonlyArray<ReachableService> | undefined, E>
      }
    ) => Effect.Effect<void, ContainerError | E>
    /**
     * Those of these containers that run in the network of an environment reach exactly these services from now on. What is
     * read by one call is in the rules before another call or `run` reads, so that older services never replace newer ones.
     */
    readonly lead: <E = never>(
      services: Effect.Effect<ReadonlyMap<string, ReadonlyArray<ReachableService>>, E>
    ) => Effect.Effect<void, ContainerError | E>
    /** A container that has ended is success. */
    readonly signal: (name: string, signal: "SIGTERM" | "SIGKILL") => Act
    /** SIGTERM, and SIGKILL once the time is over; one that is paused goes on first. One that has ended is success. */
    readonly stop: (name: string, graceSeconds: number) => Act
    /** Its processes stand still, and keep their memory. It is paused already: success. */
    readonly pause: (name: string) => Act
    /** It is not paused: success. */
    readonly unpause: (name: string) => Act
    /** Removes the container, by force when it runs, and its network. Nothing there is success. */
    readonly remove: (name: string) => Act
    /** Lets go of what removed networks have left in the firewall. */
    readonly forgetNetworks: Effect.Effect<void>
    /**
     * Everything it printed, from the start or from the second of `since` on; `follow`: and what it prints while it runs. From the moment at which the
     * container ends, Podman may leave out pieces of what it follows (its library to follow files does, once it is told
     * to stop at the end), so that only what came while it ran is sure.
     */
    readonly logs: (name: string, follow: boolean, since?: Date) => Stream.Stream<LogPiece, ContainerError>
    /** Containers with this label, whether they run or not. */
    readonly list: (label: string) => Act<ReadonlyArray<ListedContainer>>
    /** Those of them that run, with the first process of each. The engine is not started for it. */
    readonly running: (label: string) => Act<ReadonlyArray<RunningContainer>>
    /** Ends the containers with this label, and the engine if it is ours. `forGood` removes them as well. */
    readonly stopAll: (label: string, forGood: boolean) => Act
  }
>()("svc/infra/ContainerEngine") {
  static readonly layer = Layer.effect(
    ContainerEngine,
    Effect.gen(function* () {
      const host = yield* Host
      const { containerSocket, executionFirewall, services, environmentRange, userNamespaces } =
        yield* AppConfig
      const starting = yield* Semaphore.make(1)
      const leading = yield* Semaphore.make(1)
      const { place, call, client } = makeCalls(host, containerSocket)
      const info = makeEngineInfo(call)
      const guarded = executionFirewall === "off" ? Effect.succeed(true) : guardHost(services?.address)
      const recentlyGuarded = yield* Effect.cachedWithTTL(guarded, "10 seconds")
      const { create, remove, forgetNetworks } = yield* makeMaking(call, {
        guarded: recentlyGuarded,
        services,
        environmentRange,
        userNamespaces,
        info
      })
      const { pull, load, ids, removeImage } = makeImages(call)
      const archives = makeArchives(call)
      const storage = makeStorage(call)

      // Not for its version: to tell that, Podman asks the host's package manager about each of its parts.
      const ping = call("Asking the container engine", (docker) => docker.ping(), "5 seconds")
      const answering: Effect.Effect<EngineState> = Effect.matchEffect(ping, {
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
      const state = Effect.gen(function* () {
        const seen = yield* answering
        if (seen._tag !== "Ready" || (yield* recentlyGuarded)) return seen
        return { _tag: "Missing", message: unguarded.message } satisfies EngineState
      })

      const start = Effect.gen(function* () {
        const found = yield* place
        if ((yield* answering)._tag === "Ready") return
        const { own } = found
        if (own === undefined)
          return yield* new ContainerError({
            reason: "Unreachable",
            message: `The container engine at ${found.socket} does not answer`
          })
        if (!(yield* ownIsRunning(host, found.socket))) yield* startOwn(host, { ...found, own })
        yield* Effect.sleep("100 millis").pipe(
          Effect.andThen(answering),
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

      const inspect = (name: string) =>
        call("Looking at the container", (docker, abortSignal) =>
          docker.getContainer(name).inspect({ abortSignal })
        ).pipe(
          Effect.map((info) => Option.some(withKernel(toContainer(info)))),
          Effect.catchIf(
            ({ reason }) => reason === "NotFound",
            () => Effect.succeed(Option.none<Container>())
          )
        )

      const run = Effect.fnUntraced(function* <E>(
        name: string,
        options: {
          readonly runtime?: string | undefined
          readonly background?: true
          readonly services?: Effect.Effect<ReadonlyArray<ReachableService> | undefined, E>
        }
      ) {
        if (options.runtime !== undefined) yield* ensureRuntime(call, name, options.runtime)
        // A machine that was started anew has none of the rules, and may have the container.
        if (!(yield* recentlyGuarded)) return yield* unguarded
        const start = call(
          "Starting the container",
          (docker, abortSignal) => docker.getContainer(name).start({ abortSignal }),
          "60 seconds"
        ).pipe(Effect.retry(untilAddressIsFree), ignoring("Conflict"))
        if (options.background === true)
          return yield* Effect.andThen(
            start,
            Effect.flatMap(info, (found) => weighBackground(call, name, found)).pipe(
              Effect.catch(({ message }) =>
                Effect.logDebug("a container has the weight of all others", message)
              )
            )
          )
        if (services === undefined || options.services === undefined) return yield* start
        const bridge = bridgeOf("environment", name)
        /** False: there is nowhere to lead to. */
        const leadNow = leading.withPermit(
          Effect.flatMap(options.services, (some) =>
            some === undefined ? Effect.succeed(false) : Effect.as(leadTo(new Map([[bridge, some]])), true)
          )
        )
        if (!(yield* leadNow)) return yield* start
        // Before its command has begun, as far as the engine makes the bridge by then.
        const admitting = yield* Effect.forkChild(admitLoopback(bridge))
        yield* start
        // Before there was the bridge, who tidies the rules took them for left over, and nobody led it to newer services.
        yield* leadNow
        // One that has ended already may have taken its bridge along.
        yield* Effect.timeoutOption(Fiber.join(admitting), "2 seconds")
        yield* Fiber.interrupt(admitting)
      })

      const lead = Effect.fnUntraced(function* <E>(
        wanted: Effect.Effect<ReadonlyMap<string, ReadonlyArray<ReachableService>>, E>
      ) {
        if (services === undefined) return
        if (!(yield* recentlyGuarded)) return yield* unguarded
        const bridges = yield* leading.withPermit(
          Effect.gen(function* () {
            const leads = new Map(
              [...(yield* wanted)].flatMap(([name, some]) => {
                const bridge = bridgeOf("environment", name)
                return bridgeExists(bridge) ? [[bridge, some]] : []
              })
            )
            yield* leadTo(leads)
            return [...leads.keys()]
          })
        )
        yield* Effect.forEach(bridges, (bridge) => Effect.timeoutOption(admitLoopback(bridge), "2 seconds"), {
          discard: true
        })
      })

      const setPaused = (name: string, wanted: boolean) =>
        call(wanted ? "Pausing the container" : "Unpausing the container", (docker, abortSignal) => {
          const container = docker.getContainer(name)
          return wanted ? container.pause({ abortSignal }) : container.unpause({ abortSignal })
        }).pipe(
          // Engines differ in how they say that it is so already.
          Effect.catch((error) =>
            Effect.flatMap(inspect(name), (found) =>
              Option.isSome(found) && found.value.state === "running" && found.value.paused === wanted
                ? Effect.void
                : Effect.fail(error)
            )
          ),
          Effect.asVoid
        )

      const stop = Effect.fnUntraced(function* (name: string, graceSeconds: number) {
        const found = yield* inspect(name)
        if (Option.isNone(found) || found.value.state !== "running") return
        if (found.value.paused) yield* setPaused(name, false)
        yield* call(
          "Ending the container",
          (docker, abortSignal) => docker.getContainer(name).stop({ t: graceSeconds, abortSignal }),
          Duration.seconds(graceSeconds + 20)
        ).pipe(ignoring("NotFound", "Conflict"))
      })

      const signal = (name: string, signal: "SIGTERM" | "SIGKILL") =>
        call("Ending the container", (docker, abortSignal) =>
          docker.getContainer(name).kill({ signal, abortSignal })
        ).pipe(ignoring("NotFound", "Conflict"))

      const list = (label: string) =>
        Effect.map(
          call("Listing containers", (docker, abortSignal) =>
            docker.listContainers({ all: true, filters: { label: [label] }, abortSignal })
          ),
          (containers) =>
            containers.flatMap(({ Names: [name], Labels, State }) =>
              name === undefined
                ? []
                : [
                    {
                      name: name.replace(/^\//, ""),
                      labels: Labels,
                      state: stateOf(State),
                      paused: State === "paused"
                    }
                  ]
            )
        )

      /** By id: a container is started once. */
      let pids: ReadonlyMap<string, number> = new Map()
      const running = Effect.fnUntraced(function* (label: string) {
        const engine = yield* Effect.option(place)
        // Most hosts have none, and it is no failure to say so again and again.
        if (Option.isNone(engine) || !fs.existsSync(engine.value.socket)) return []
        const found = yield* call(
          "Listing containers",
          (docker, abortSignal) =>
            docker.listContainers({ filters: { label: [label], status: ["running"] }, abortSignal }),
          "5 seconds"
        )
        const known = pids
        const all = yield* Effect.forEach(found, ({ Id, Labels }) =>
          Effect.map(
            known.has(Id)
              ? Effect.succeed(known.get(Id) ?? 0)
              : call(
                  "Looking at the container",
                  (docker, abortSignal) => docker.getContainer(Id).inspect({ abortSignal }),
                  "5 seconds"
                ).pipe(
                  Effect.map(({ State }) => State.Pid),
                  // It has just ended.
                  Effect.orElseSucceed(() => 0)
                ),
            (pid): RunningContainer => ({ id: Id, labels: Labels, pid })
          )
        )
        const there = all.filter(({ pid }) => pid > 1)
        pids = new Map(there.map(({ id, pid }) => [id, pid]))
        return there
      })

      return ContainerEngine.of({
        state: externalCall("containers.state", "read")(state),
        start: externalCall("containers.startEngine", "write")(starting.withPermit(start)),
        inspect: (name) => externalCall("containers.inspect", "read")(inspect(name)),
        pull: (request, stallMs) => externalCall("containers.pull", "write")(pull(request, stallMs)),
        load: (archive) => externalCall("containers.load", "write")(load(archive)),
        images: externalCall("containers.images", "read")(ids),
        removeImage: (id, isOurs) => externalCall("containers.removeImage", "write")(removeImage(id, isOurs)),
        findImage: (name) => externalCall("containers.findImage", "read")(archives.findImage(name)),
        putFile: (place, file) => externalCall("containers.putFile", "write")(archives.putFile(place, file)),
        putArchive: (place, archive) =>
          externalCall("containers.putArchive", "write")(archives.putArchive(place, archive)),
        take: (name, path, file, mostBytes) =>
          externalCall("containers.take", "read")(archives.take(name, path, file, mostBytes)),
        imageDefaults: (id) => externalCall("containers.imageDefaults", "read")(defaultsOf(call, id)),
        exec: (name, program, print) =>
          externalCall("containers.exec", "write")(execute(client, name, program, print)),
        written: (name) => externalCall("containers.written", "read")(storage.written(name)),
        disk: externalCall("containers.disk", "read")(storage.disk),
        copy: (from, to, mostBytes) =>
          externalCall("containers.copy", "write")(archives.copy(from, to, mostBytes)),
        commit: (name, image, command) =>
          externalCall("containers.commit", "write")(archives.commit(name, image, command)),
        create: (plan) => externalCall("containers.create", "write")(create(plan)),
        run: (name, options) => externalCall("containers.run", "write")(run(name, options)),
        lead: (wanted) => externalCall("containers.lead", "write")(lead(wanted)),
        signal: (name, which) => externalCall("containers.signal", "write")(signal(name, which)),
        stop: (name, graceSeconds) => externalCall("containers.stop", "write")(stop(name, graceSeconds)),
        pause: (name) => externalCall("containers.pause", "write")(setPaused(name, true)),
        unpause: (name) => externalCall("containers.unpause", "write")(setPaused(name, false)),
        remove: (name) => externalCall("containers.remove", "write")(remove(name)),
        forgetNetworks: externalCall("containers.forgetNetworks", "write")(forgetNetworks),
        logs: (name, follow, since) => logPieces(client, name, follow, since),
        list: (label) => externalCall("containers.list", "read")(list(label)),
        running: (label) => externalCall("containers.running", "read")(running(label)),
        stopAll: (label, forGood) =>
          Effect.gen(function* () {
            const found = yield* Effect.option(place)
            if (Option.isNone(found)) return
            const { own, socket } = found.value
            if ((yield* answering)._tag !== "Ready") {
              // What was started once may have left containers that run on; without the engine nobody can end them.
              if (own === undefined || !fs.existsSync(`${host.dataDir}/containers`)) return
              yield* start
            }
            const names = (yield* list(label)).map(({ name }) => name)
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
