/** Where nothing runs without a user namespace. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { answerOf, deploy, makeShop, operator, over, ready, server } from "#test/apps/world.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { containerEngineWithUserRange, sh } from "#test/setup/containers.ts"
import { file } from "./archives.ts"
import { baseImage, buildPlane, deploySource, nothingIsLeft } from "./world.ts"

const world = buildPlane(
  {},
  () => "",
  { SVC_CONTAINER_USERNS: "required" },
  Layer.effect(Containers, containerEngineWithUserRange)
)

layer(world, { excludeTestServices: true, timeout: "5 minutes" })(
  "with users of their own required",
  (it) => {
    campaign(
      it.effect,
      "mapped-users",
      "images run, and builds are refused in words, since their containers cannot have them",
      { rounds: 0 },
      () =>
        Effect.gen(function* () {
          const { path, host } = yield* makeShop("mapped")
          yield* ready(path, yield* deploy(path, server("mapped")))
          const svc = yield* operator
          const map = yield* svc(["exec", "mapped", "--", ...sh("busybox cat /proc/self/uid_map")])
          const [inside, outside, count] = map.stdout.trim().split(/\s+/).map(Number)
          assert.deepStrictEqual([inside, count], [0, 65_536])
          assert.isAtLeast(outside ?? 0, 2_147_483_648)
          for (const entry of [
            file("svc.yaml", JSON.stringify({ build: { build: "id", start: "exec node x" } })),
            file("Dockerfile", `FROM ${baseImage}\nRUN id\nCMD ["node"]\n`)
          ]) {
            const refused = yield* over(path, yield* deploySource(path, entry))
            assert.deepStrictEqual([refused.state, refused.errorCode], ["failed", "build_unavailable"])
            assert.match(refused.error, /SVC_CONTAINER_USERNS=required/)
          }
          yield* nothingIsLeft
          assert.strictEqual(yield* answerOf(host), "200 mapped")
        })
    )
  }
)
