/** A Podman of the platform's own: started when needed, found again, stopped with everything. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine } from "#src/infra/ContainerEngine.ts"
import { Host } from "#src/infra/Host.ts"

it.live(
  "an engine of our own is started once, found by the next control plane, and stopped",
  () =>
    Effect.gen(function* () {
      const dataDir = yield* Effect.acquireRelease(
        Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
        (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 10 }))
      )
      const plane = () =>
        ContainerEngine.layer.pipe(
          Layer.provideMerge(Host.layer),
          Layer.provide(AppConfig.layerWith({ dataDir })),
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
