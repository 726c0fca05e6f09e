/** The engine that the platform starts itself, from the first execution to `svc down`. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Host } from "#src/infra/host/Host.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { beside } from "./beside.ts"
import { base, Containers, create, ended, isRunning, makeProject, printed, until } from "./world.ts"

/** The other engine only fills the registry; where that may be spoken to without TLS, hosts say in a file. */
const registries = Effect.flatMap(Containers, ({ folder }) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const before = process.env["CONTAINERS_REGISTRIES_CONF"]
      process.env["CONTAINERS_REGISTRIES_CONF"] = path.join(folder, "registries.conf")
      return before
    }),
    (before) =>
      Effect.sync(() => {
        if (before === undefined) delete process.env["CONTAINERS_REGISTRIES_CONF"]
        else process.env["CONTAINERS_REGISTRIES_CONF"] = before
      })
  )
)
/** Where the platform looks first: one that a host has for everybody is not used beside it. */
const placed = Effect.flatMap(Host, ({ socketDir }) =>
  Effect.sync(() => fs.writeFileSync(path.join(socketDir, "podman.sock"), ""))
)
const plane = testPlane().pipe(
  Layer.provideMerge(Layer.effectDiscard(registries)),
  Layer.provideMerge(Containers.layer)
)

/** This process started it, and may not have read its exit yet: then it is listed still, and is nothing any more. */
const runsYet = (pid: number) =>
  Effect.flatMap(Host, ({ isRunning }) => isRunning(pid, "podman")).pipe(Effect.provide(beside({})))

layer(plane, { excludeTestServices: true, timeout: "3 minutes" })("an engine of our own", (it) => {
  it.effect(
    "is started by the first execution, runs it, keeps what it prints, and leaves nothing when all is stopped",
    () =>
      Effect.gen(function* () {
        const { call, dataDir } = yield* Plane
        yield* placed.pipe(Effect.provide(beside({})))
        yield* makeProject
        const storage = path.join(dataDir, "containers")
        const pidFile = path.join(storage, "podman.pid")
        assert.isFalse(fs.existsSync(pidFile))
        // It could be started: that is enough for users.
        assert.isTrue((yield* call("GET", `${base}/availability`)).body.ready)
        const first = yield* create({ command: sh("echo out; echo err >&2; exit 3") })
        const done = yield* ended(first)
        assert.deepStrictEqual([done.status, done.exitCode, done.errorCode], ["failed", 3, null], done.error)
        assert.match(done.imageDigest, /^sha256:/)
        assert.strictEqual(yield* printed(first), "out\n")
        assert.strictEqual(yield* printed(first, "stderr"), "err\n")

        const pid = Number(fs.readFileSync(pidFile, "utf8"))
        const looping = yield* create({
          command: sh("echo on; while :; do busybox sleep 0.2; done"),
          env: { PATH: "/bin" }
        })
        yield* isRunning(looping)
        assert.strictEqual(Number(fs.readFileSync(pidFile, "utf8")), pid)
        assert.isTrue(yield* runsYet(pid))
        // It dies: what runs goes on, and the next look starts it again.
        process.kill(pid, "SIGKILL")
        const early = yield* create({ command: sh("echo again") })
        assert.strictEqual((yield* ended(early)).status, "succeeded")
        assert.notStrictEqual(Number(fs.readFileSync(pidFile, "utf8")), pid)
        yield* until(looping, ({ status }) => status === "running", "still running")
        yield* call("POST", `${base}/${looping}/cancel`)
        assert.strictEqual((yield* ended(looping)).status, "cancelled")
        assert.strictEqual(yield* printed(looping), "on\n")

        yield* Effect.gen(function* () {
          const engine = yield* ContainerEngine
          const { label } = yield* Installation
          assert.deepStrictEqual(yield* engine.list(label), [])
          yield* engine.stopAll(label, true)
        }).pipe(Effect.provide(beside({})))
        assert.isFalse(yield* runsYet(Number(fs.readFileSync(pidFile, "utf8"))))
        assert.notInclude(fs.readFileSync("/proc/mounts", "utf8"), dataDir)
      }),
    400_000
  )
})
