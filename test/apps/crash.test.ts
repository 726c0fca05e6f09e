/** Control planes killed while an app is started and replaced, and what the next one makes of it. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { containerEngine } from "#test/setup/containers.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { server } from "./world.ts"

const path = "/v1/orgs/main/projects/shop"

it.live(
  "a control plane that is killed again and again brings the newest version up once, and leaves nothing behind",
  () =>
    Effect.gen(function* () {
      const engine = yield* containerEngine
      const world = yield* planesOnSharedServer
      yield* Effect.promise(async () => {
        const plane = await makePlane(world.base, world.store.url, {
          SVC_CONTAINER_SOCKET: engine.socket,
          SVC_OUTBOUND_ALLOW: "127.0.0.0/8"
        })
        world.planes.push(plane)
        await plane.start()
        await plane.call("POST", "/v1/orgs/main/projects", {
          name: "Shop",
          slug: "shop",
          runtimeClass: "always-on",
          region: "local"
        })
        const read = async (id: string) => (await plane.call("GET", `${path}/deployments/${id}`)).body
        for (const [version, pauses] of [
          ["one", [300, 900]],
          ["two", [600, 1_500]]
        ] as const) {
          const made = await plane.call("POST", `${path}/deployments`, {
            image: engine.openImage,
            command: server(version)
          })
          assert.strictEqual(made.status, 202, JSON.stringify(made.body))
          // Wherever it is by then: each kill meets another step.
          for (const pause of pauses) {
            await sleep(pause)
            await plane.crash()
            await plane.start()
          }
          await until(`${version} is ready`, async () => (await read(made.body.id)).state === "ready", 180)
        }
        const names = () =>
          engine
            .podman("ps", "-a", "--filter", "label=svc.app", "--format", "{{.Names}}")
            .split("\n")
            .filter((name) => name !== "")
        await until("one container is left", async () => names().length === 1, 120)
        const instances = (await plane.call("GET", `${path}/app/instances`)).body
        const healthy = instances.filter(({ state }: { state: string }) => state === "healthy")
        assert.lengthOf(healthy, 1)
        assert.deepStrictEqual(names(), [`svc-${healthy[0].id}`])
      })
    }),
  300_000
)
