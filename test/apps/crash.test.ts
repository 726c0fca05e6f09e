/** Control planes and container engines killed while an app is started and replaced, and what comes of it. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { containerEngine } from "#test/setup/containers.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { server } from "./world.ts"

const path = "/v1/orgs/main/projects/shop"

campaign(
  it.live,
  "app-kills",
  "killed again and again, together with its engine, a control plane brings the newest version up once and leaves nothing",
  { rounds: 0, roundMs: 300_000 },
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
        const deploy = async (version: string) => {
          const made = await plane.call("POST", `${path}/deployments`, {
            image: engine.openImage,
            command: server(version)
          })
          assert.strictEqual(made.status, 202, JSON.stringify(made.body))
          return String(made.body.id)
        }
        const isReady = (id: string) =>
          until(
            "it is ready",
            async () => {
              const { state, error } = await read(id)
              // What is seen last says how far it came.
              if (state !== "ready") throw new Error(`${state}: ${error}`)
              return true
            },
            100
          )
        const one = await deploy("one")
        // Wherever it is by then: each kill meets another step.
        for (const pause of [300, 900]) {
          await sleep(pause)
          await plane.crash()
          await plane.start()
        }
        await isReady(one)
        const two = await deploy("two")
        await sleep(600)
        await engine.kill()
        await plane.crash()
        await engine.restart()
        await plane.start()
        await isReady(two)
        const names = () =>
          engine
            .podman("ps", "-a", "--filter", "label=svc.app", "--format", "{{.Names}}")
            .split("\n")
            .filter((name) => name !== "")
        await until("one container is left", async () => names().length === 1, 90)
        const instances = (await plane.call("GET", `${path}/app/instances`)).body
        const healthy = instances.filter(({ state }: { state: string }) => state === "healthy")
        assert.lengthOf(healthy, 1)
        assert.deepStrictEqual(names(), [`svc-${healthy[0].id}`])
      })
    })
)
