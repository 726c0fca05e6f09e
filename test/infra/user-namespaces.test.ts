/** A machine that has users for one container only. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Containers } from "#test/executions/world.ts"
import { engineWith, sh } from "#test/setup/containers.ts"
import { uuid } from "#test/setup/fixtures.ts"

const world = Layer.unwrap(
  Effect.map(Containers, ({ folder, socket }) =>
    ContainerEngine.layer.pipe(
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
).pipe(Layer.provideMerge(Layer.effect(Containers, engineWith("2147483648:65536"))))

layer(world, { excludeTestServices: true, timeout: "2 minutes" })("users of containers", (it) => {
  it.effect("that are used up are said to be so, and are had again once a container has gone", () =>
    Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const { openImage } = yield* Containers
      const { id } = yield* engine.pull({ reference: openImage, credentials: undefined }, 60_000)
      const create = (name: string) =>
        engine.create({
          name,
          labels: {},
          image: id,
          command: sh("exec busybox sleep 300"),
          env: Redacted.make({ PATH: "/bin" }),
          cpus: 0.5,
          cpuShares: 128,
          memoryMb: 64,
          runtime: undefined,
          network: { kind: "none" }
        })
      const [first, second] = [`svc-${uuid()}`, `svc-${uuid()}`]
      yield* create(first)
      yield* engine.run(first, {})
      const refused = yield* Effect.flip(create(second))
      assert.strictEqual(refused.reason, "Failed")
      assert.match(
        refused.message,
        /No users are left for another container: each takes 65536 .*\/etc\/subuid/
      )
      yield* engine.remove(first)
      assert.isString(yield* create(second))
      yield* engine.remove(second)
    })
  )
})
