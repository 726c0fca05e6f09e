/** Instances of apps in a runtime that was chosen for them. */
import * as fs from "node:fs"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { campaign } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { answerOf, appPlane, deploy, makeShop, over, readInstances, ready, server } from "./world.ts"

const world = Layer.unwrap(
  Effect.map(Containers, ({ sandbox }) => appPlane({}, { SVC_APP_RUNTIME: sandbox.name }))
).pipe(Layer.provideMerge(Containers.layer))

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("a runtime for apps", (it) => {
  campaign(
    it.effect,
    "app-runtime",
    "is what instances run in, and nothing runs in another one",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { sandbox, kill, restart } = yield* Containers
        const calls = () => (fs.existsSync(sandbox.calls) ? fs.readFileSync(sandbox.calls, "utf8") : "")
        const { path, host } = yield* makeShop("held")
        // The engine would take its own runtime without a word.
        const refused = yield* over(path, yield* deploy(path, server("held")))
        assert.strictEqual(refused.state, "failed")
        assert.match(refused.error, /ended 3 times in a row/)
        const ended = yield* readInstances(path)
        assert.lengthOf(ended, 3)
        for (const { exitReason } of ended) assert.include(exitReason, sandbox.name)
        assert.strictEqual(calls(), "")
        yield* Effect.promise(async () => {
          await kill()
          await restart(sandbox.name)
        })
        yield* ready(path, yield* deploy(path, server("held")))
        assert.strictEqual(yield* answerOf(host), "200 held")
        assert.match(calls(), /create --bundle/)
      })
  )
})
