/** Control planes killed while executions are in each of their phases, and what the next one makes of them. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { containerEngine, registryPassword, registryUser, sh } from "#test/setup/containers.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { base, small } from "./world.ts"

campaign(
  it.live,
  "execution-kills",
  "a control plane that is killed changes nothing for what runs: it is found again, and told of once",
  { rounds: 0, roundMs: 900_000 },
  () =>
    Effect.gen(function* () {
      const engine = yield* containerEngine
      const world = yield* planesOnSharedServer
      yield* Effect.promise(async () => {
        const plane = await makePlane(world.base, world.store.url, {
          SVC_CONTAINER_SOCKET: engine.socket,
          SVC_REGISTRIES: engine.registry,
          SVC_OUTBOUND_ALLOW: "127.0.0.0/8"
        })
        world.planes.push(plane)
        await plane.start()
        const again = async () => {
          await plane.crash()
          await plane.start()
        }
        await plane.call("POST", "/v1/orgs/main/projects", { name: "Jobs", slug: "jobs" })
        const create = async (script: string, more: object = {}) => {
          const { status, body } = await plane.call("POST", base, {
            image: engine.openImage,
            command: sh(script),
            region: "local",
            resources: small,
            timeoutSeconds: 1_800,
            env: { PATH: "/bin" },
            ...more
          })
          if (status !== 202) throw new Error(JSON.stringify(body))
          return String(body.id)
        }
        const read = async (id: string) => (await plane.call("GET", `${base}/${id}`)).body
        const ended = async (id: string) => {
          await until(`the end of ${id}`, async () => (await read(id)).cleanupStatus === "confirmed", 180)
          return read(id)
        }
        const printed = async (id: string): Promise<string> =>
          (await plane.call("GET", `${base}/${id}/logs?limit=1000`)).body.items
            .map(({ text }: { text: string }) => text)
            .join("")
        const count = "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); busybox sleep 0.2; done; exit 5"
        const lines = Array.from({ length: 40 }, (_, i) => `line ${i}\n`).join("")

        // One runs: half of its lines are printed while nobody is there. One is being told to end, which it does not
        // listen to. The image of one is fetched: the credentials are found again.
        const stubborn = await create("trap 'echo told' TERM; echo on; while :; do busybox sleep 0.1; done")
        await until("it runs", async () => (await printed(stubborn)).includes("on\n"))
        await plane.call("POST", `${base}/${stubborn}/cancel`)
        const counting = await create(count)
        await until("it is told", async () => (await printed(stubborn)).includes("told\n"))
        await until("it prints", async () => (await printed(counting)).includes("line 3\n"))
        const password = registryPassword
        const credentials = { registry: engine.registry, username: registryUser, password }
        const fetching = await create("echo fetched", {
          image: engine.image,
          imagePullCredentials: credentials
        })
        await again()

        // At different moments of making and starting them: each has run once.
        const starting: Array<string> = []
        for (const wait of [400, 300]) {
          starting.push(await create("echo once"))
          await sleep(wait)
        }
        await again()
        const counted = await ended(counting)
        assert.deepStrictEqual([counted.status, counted.exitCode, counted.errorCode], ["failed", 5, null])
        assert.strictEqual(await printed(counting), lines)
        assert.strictEqual((await ended(fetching)).status, "succeeded")
        assert.strictEqual(await printed(fetching), "fetched\n")
        for (const id of starting) {
          assert.strictEqual((await ended(id)).status, "succeeded")
          assert.strictEqual(await printed(id), "once\n")
        }
        const stopped = await ended(stubborn)
        assert.deepStrictEqual([stopped.status, stopped.exitCode], ["cancelled", 137])
        assert.strictEqual(engine.podman("ps", "-a", "-q"), "")
      })
    }).pipe(Effect.scoped)
)
