/** What a container of an environment is on a real engine: how it is bound, called, paused and ended, and what it reaches. */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine, type ContainerPlan } from "#src/infra/containers/ContainerEngine.ts"
import { bridgeOf } from "#src/infra/containers/network.ts"
import { leadTo } from "#src/infra/containers/services.ts"
import { groupsOfProcess } from "#src/infra/host/control-group-place.ts"
import { Host } from "#src/infra/host/Host.ts"
import { containerEngineWithUserRange, sh } from "#test/setup/containers.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { saying } from "#test/setup/saying.ts"
import { eventually } from "#test/setup/wait.ts"

const installation = `test-${uuid()}`
const label = `svc.installation=${installation}`
const environmentUid = uuid()
const orgId = uuid()

class World extends Context.Service<
  World,
  { readonly image: string; readonly socket: string; readonly folder: string }
>()("test/World") {}

const world = Layer.unwrap(
  Effect.map(containerEngineWithUserRange, ({ folder, socket, openImage }) =>
    Layer.effect(
      World,
      Effect.gen(function* () {
        const engine = yield* ContainerEngine
        const { id } = yield* engine.pull({ reference: openImage, credentials: undefined }, 60_000)
        return { image: id, socket, folder }
      })
    ).pipe(
      Layer.provideMerge(ContainerEngine.layer),
      Layer.provide(Host.layer),
      Layer.provide(
        AppConfig.layerWith({
          dataDir: `${folder}/data`,
          containerSocket: socket,
          userNamespaces: "required"
        })
      )
    )
  )
)

const planOf = (name: string, image: string, values: Partial<ContainerPlan> = {}): ContainerPlan => ({
  name,
  labels: { "svc.installation": installation },
  image,
  command: undefined,
  env: Redacted.make({ PATH: "/bin" }),
  cpus: 0.5,
  cpuShares: 128,
  memoryMb: 64,
  runtime: undefined,
  network: { kind: "environment", orgId, environmentUid },
  ...values
})

/** A service of this machine that says its name. */
const serving = (word: string) =>
  Effect.map(saying(`${word}\n`, "127.0.0.1"), (port) => ({ address: "127.0.0.1", port }))

const found = (name: string) =>
  Effect.flatMap(ContainerEngine, (engine) => Effect.map(engine.inspect(name), Option.getOrThrow))
const printed = (name: string) =>
  Effect.flatMap(ContainerEngine, (engine) =>
    Effect.map(Stream.runCollect(engine.logs(name, false)), (pieces) =>
      [...pieces].map(({ content }) => content.toString()).join("")
    )
  )
const rulesOf = (name: string) =>
  execFileSync("iptables", ["-w", "5", "-t", "nat", "-S"], { encoding: "utf8" })
    .split("\n")
    .filter((line) => line.includes(bridgeOf("environment", name)))

/** What an app answers this machine; undefined: nothing, in that time. */
const asked = (address: string | undefined, ms: number) =>
  Effect.promise(() =>
    fetch(`http://${address}:8080/said`, { signal: AbortSignal.timeout(ms) }).then(
      (answer) => answer.text(),
      () => undefined
    )
  )

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("a container of an environment", (it) => {
  it.effect(
    "is bound, reaches the services that were named from its first command on, answers this machine, is paused and ended",
    () =>
      Effect.gen(function* () {
        const engine = yield* ContainerEngine
        const { image } = yield* World
        const [own, later] = [yield* serving("own"), yield* serving("later")]
        const name = `svc-${uuid()}`
        const ask = ({ port }: { readonly port: number }, seconds: number) =>
          `busybox timeout ${seconds + 1} busybox nc -w ${seconds} services.svc.internal ${port} </dev/null`
        yield* Effect.addFinalizer(() => Effect.ignore(engine.remove(name)))
        yield* engine.create(
          planOf(name, image, {
            command: sh(`trap 'echo "told to end"; exit 0' TERM
              echo "service: $(${ask(own, 20)})"
              echo "user: $(busybox id -u):$(busybox id -g)"
              echo x 2>/dev/null >/file || echo "read only"
              echo hello >/tmp/said
              echo "tmp: $(busybox df -m /tmp | busybox awk 'NR==2 {print $2}')"
              echo "oom: $(busybox cat /proc/self/oom_score_adj)"
              busybox grep -E "CapEff|CapBnd|NoNewPrivs|Seccomp:" /proc/self/status
              echo "largest file: $(ulimit -f)"
              busybox httpd -p 8080 -h /tmp
              echo serving
              while :; do
                echo "reached: $(${ask(own, 1)}) $(${ask(later, 1)})"
                busybox sleep 0.1
              done`),
            tmpMb: 8,
            largestFileMb: 4,
            user: "1000:1000",
            oomScore: 500
          })
        )
        const listed = Effect.map(engine.list(label), ([one]) => [one?.state, one?.paused])
        assert.deepStrictEqual(yield* listed, ["created", false])
        assert.isUndefined((yield* found(name)).address)
        yield* engine.run(name, { services: Effect.succeed([own]) })
        const text = yield* eventually("it serves", printed(name), (all) => all.includes("serving"))
        for (const line of [
          "service: own",
          "user: 1000:1000",
          "read only",
          "tmp: 8",
          "oom: 500",
          "CapEff:\t0000000000000000",
          "CapBnd:\t0000000000000000",
          "NoNewPrivs:\t1",
          // A filter of system calls (proc(5)).
          "Seccomp:\t2",
          "largest file: 8192"
        ])
          assert.include(text.split("\n"), line)
        const labels = (yield* engine.list(label))[0]?.labels ?? {}
        assert.strictEqual(labels["svc.environment"], environmentUid)
        assert.strictEqual(labels["svc.organization"], orgId)

        const { address } = yield* found(name)
        assert.strictEqual(yield* asked(address, 20_000), "hello\n")
        yield* engine.pause(name)
        yield* engine.pause(name)
        assert.deepStrictEqual(yield* listed, ["running", true])
        assert.isUndefined(yield* asked(address, 500))
        yield* engine.unpause(name)
        yield* engine.unpause(name)
        assert.deepStrictEqual(yield* listed, ["running", false])
        assert.strictEqual(yield* asked(address, 20_000), "hello\n")

        // A service that comes later is led to as well, and one that is gone is not.
        yield* engine.lead(Effect.succeed(new Map([[name, [later]]])))
        yield* eventually("only the later one is reached", printed(name), (all) =>
          /^reached: {2}later$/m.test(all)
        )

        yield* engine.pause(name)
        yield* engine.stop(name, 60)
        assert.include(yield* printed(name), "told to end")
        const ended = yield* found(name)
        assert.deepStrictEqual(
          [ended.state, ended.exitCode, ended.paused, ended.address],
          ["exited", 0, false, undefined]
        )
        yield* engine.stop(name, 60)
        assert.notStrictEqual((yield* Effect.flip(engine.pause(name))).reason, "NotFound")

        // Started again it is called at another address, and reaches what it is led to by then.
        yield* engine.run(name, { services: Effect.succeed([own]) })
        yield* eventually("it serves again", printed(name), (all) => all.split("service: own").length === 3)
        assert.strictEqual(rulesOf(name).length, 1)

        yield* engine.remove(name)
        assert.deepStrictEqual(yield* engine.list(label), [])
        assert.deepStrictEqual(rulesOf(name), [])
        assert.isFalse(fs.existsSync(`/sys/class/net/${bridgeOf("environment", name)}`))
        assert.isFalse(fs.existsSync(`/var/lib/cni/networks/${name}`))
      }).pipe(Effect.scoped),
    300_000
  )

  it.effect(
    "runs what its image runs by itself, is ended by force, and leaves no rule that a sweep does not find",
    () =>
      Effect.gen(function* () {
        const engine = yield* ContainerEngine
        const { image } = yield* World
        const [image1, stubborn] = [`svc-${uuid()}`, `svc-${uuid()}`]
        yield* Effect.addFinalizer(() =>
          Effect.forEach([image1, stubborn], (name) => Effect.ignore(engine.remove(name)), { discard: true })
        )
        yield* engine.create(planOf(image1, image))
        yield* engine.run(image1, { services: Effect.succeed([]) })
        const done = yield* eventually("it has ended", found(image1), ({ state }) => state === "exited")
        // A shell that has nothing to read.
        assert.strictEqual(done.exitCode, 0)

        yield* engine.create(
          planOf(stubborn, image, { command: sh("trap '' TERM; while :; do busybox sleep 1; done") })
        )
        yield* engine.run(stubborn, { services: Effect.succeed([]) })
        yield* engine.stop(stubborn, 1)
        assert.strictEqual((yield* found(stubborn)).exitCode, 137)

        // As a process leaves it that is killed before it has started the container.
        const gone = `svc-${uuid()}`
        yield* leadTo(new Map([[bridgeOf("environment", gone), [{ address: "127.0.0.1", port: 20_001 }]]]))
        assert.strictEqual(rulesOf(gone).length, 1)
        yield* engine.forgetNetworks
        assert.deepStrictEqual(rulesOf(gone), [])
      }).pipe(Effect.scoped),
    300_000
  )

  it.effect("has users of its own, where the engine has some to give", () =>
    Effect.gen(function* () {
      const { image, socket, folder } = yield* World
      const engineWith = (userNamespaces: "required" | "off") =>
        ContainerEngine.pipe(
          Effect.provide(
            Layer.fresh(ContainerEngine.layer).pipe(
              Layer.provide(Host.layer),
              Layer.provide(
                AppConfig.layerWith({ dataDir: `${folder}/data`, containerSocket: socket, userNamespaces })
              )
            )
          )
        )
      const engine = yield* engineWith("required")
      const [own, host] = [`svc-${uuid()}`, `svc-${uuid()}`]
      const root = { command: sh("busybox cat /proc/self/uid_map"), network: { kind: "none" } } as const
      yield* Effect.addFinalizer(() =>
        Effect.forEach([own, host], (name) => Effect.ignore(engine.remove(name)), { discard: true })
      )
      yield* engine.create(planOf(own, image, root))
      const refused = yield* Effect.flip(engine.create(planOf(host, image, { ...root, hostUsers: true })))
      assert.match(refused.message, /SVC_CONTAINER_USERNS=required runs nothing without/)
      yield* (yield* engineWith("off")).create(planOf(host, image, { ...root, hostUsers: true }))
      for (const name of [own, host]) yield* engine.run(name, {})
      const usersOf = (name: string) =>
        Effect.map(
          eventually("it tells them", printed(name), (text) => text.includes("\n")),
          (text) => text.trim().split(/\s+/).map(Number)
        )
      const [first, outside = 0, count] = yield* usersOf(own)
      assert.deepStrictEqual([first, count], [0, 65_536])
      assert.isAtLeast(outside, 2_147_483_648)
      assert.deepStrictEqual(yield* usersOf(host), [0, 0, 4_294_967_295])
    }).pipe(Effect.scoped)
  )

  it.effect("in the background has less weight than all that runs beside it", () =>
    Effect.gen(function* () {
      const { image } = yield* World
      const engine = yield* ContainerEngine
      const [front, back] = [`svc-${uuid()}`, `svc-${uuid()}`]
      yield* Effect.addFinalizer(() =>
        Effect.forEach([front, back], (name) => Effect.ignore(engine.remove(name)), { discard: true })
      )
      const plan = { command: sh("busybox sleep 60"), network: { kind: "none" } } as const
      yield* engine.create(planOf(front, image, plan))
      yield* engine.create(planOf(back, image, { ...plan, background: true }))
      yield* engine.run(front, {})
      yield* engine.run(back, { background: true })
      /** Weights of the groups that it is in, from the top, whose own cannot be set. */
      const weightsOf = Effect.fnUntraced(function* (name: string) {
        const { id } = yield* found(name)
        const running = (yield* engine.running(label)).find((one) => one.id === id)
        const { version, folders } = yield* Effect.promise(() => groupsOfProcess(running?.pid ?? 0))
        const [controller, file, usual] =
          version === 1 ? ["cpu", "cpu.shares", 1024] : ["", "cpu.weight", 100]
        const weights: Array<number> = []
        let folder = folders.get(controller) ?? ""
        for (; fs.existsSync(`${folder}/${file}`); folder = path.dirname(folder))
          weights.push(Number(fs.readFileSync(`${folder}/${file}`, "utf8")) / usual)
        return version === 1 ? weights.reverse().slice(1) : weights.reverse()
      })
      assert.strictEqual((yield* weightsOf(front))[0], 1)
      assert.isBelow((yield* weightsOf(back))[0] ?? 1, 0.05)
    }).pipe(Effect.scoped)
  )
})
