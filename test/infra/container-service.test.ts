/** A Podman of the platform's own: started when needed, found again, stopped with everything. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig, type Settings } from "#src/config.ts"
import { ContainerEngine, type ContainerPlan } from "#src/infra/containers/ContainerEngine.ts"
import { Host } from "#src/infra/host/Host.ts"
import { sweep } from "#test/setup/processes.ts"

const plan: ContainerPlan = {
  name: "svc-test-unguarded",
  labels: { "svc.installation": "test" },
  image: "none",
  command: ["x"],
  env: Redacted.make({}),
  cpus: 1,
  cpuShares: 1024,
  memoryMb: 64,
  runtime: undefined,
  network: { kind: "isolated" }
}

it.live(
  "an engine of our own is started once, found by the next control plane, and stopped",
  () =>
    Effect.gen(function* () {
      const dataDir = yield* Effect.acquireRelease(
        Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
        (dir) => Effect.promise(() => sweep(dir))
      )
      const plane = (settings: Partial<Settings> = {}) =>
        ContainerEngine.layer.pipe(
          Layer.provideMerge(Host.layer),
          Layer.provide(AppConfig.layerWith({ dataDir, ...settings })),
          Layer.fresh
        )
      const pid = () => fs.readFileSync(path.join(dataDir, "containers", "podman.pid"), "utf8")
      const first = yield* Effect.gen(function* () {
        const engine = yield* ContainerEngine
        // Where the platform looks first: one that the host has for everybody is not used beside it.
        const { socketDir } = yield* Host
        fs.writeFileSync(path.join(socketDir, "podman.sock"), "")
        const before = yield* engine.state
        assert.deepStrictEqual([before._tag, before._tag === "Down" && before.startable], ["Down", true])
        yield* engine.start
        assert.strictEqual((yield* engine.state)._tag, "Ready")
        return pid()
      }).pipe(Effect.provide(plane()))

      // A host whose firewall says no: nothing is made there that nobody holds back.
      const programs = path.join(dataDir, "programs")
      fs.mkdirSync(programs)
      for (const program of ["iptables", "iptables-restore"])
        fs.writeFileSync(path.join(programs, program), "#!/bin/sh\nexit 4\n", { mode: 0o755 })
      yield* Effect.acquireUseRelease(
        Effect.sync(() => {
          const before = process.env["PATH"]
          process.env["PATH"] = `${programs}:${before}`
          return before
        }),
        () =>
          Effect.gen(function* () {
            const engine = yield* ContainerEngine
            const state = yield* engine.state
            assert.strictEqual(state._tag, "Missing")
            assert.match(
              state._tag === "Missing" ? state.message : "",
              /iptables.*SVC_EXECUTION_FIREWALL=off/
            )
            const refused = yield* Effect.flip(engine.create(plan))
            assert.strictEqual(refused.reason, "HostDependencyMissing")
            assert.deepStrictEqual(yield* engine.list("svc.installation=test"), [])
          }).pipe(
            Effect.provide(plane()),
            Effect.andThen(
              Effect.gen(function* () {
                const engine = yield* ContainerEngine
                assert.strictEqual((yield* engine.state)._tag, "Ready")
              }).pipe(Effect.provide(plane({ executionFirewall: "off" })))
            )
          ),
        (before) =>
          Effect.sync(() => {
            process.env["PATH"] = before
          })
      )

      yield* Effect.gen(function* () {
        const engine = yield* ContainerEngine
        assert.strictEqual((yield* engine.state)._tag, "Ready")
        yield* engine.start
        assert.strictEqual(pid(), first)
        yield* engine.stopAll("svc.installation=test", true)
        assert.strictEqual((yield* engine.state)._tag, "Down")
      }).pipe(Effect.provide(plane()))
    }).pipe(Effect.scoped),
  300_000
)
