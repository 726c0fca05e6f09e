/** The end of an agent, with requests under way. */
import * as http from "node:http"
import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { makeForwarder } from "#src/edge/agent/forward.ts"
import type { EdgeAnswer } from "#src/edge/agent/Gate.ts"
import { listen } from "#src/edge/agent/listener.ts"
import { agentHeaders } from "#src/edge/haproxy-config.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"

it.live("what was begun is answered when the agent stops, and the port is the next one's", () =>
  Effect.gen(function* () {
    const port = yield* Effect.promise(freePort)
    const [begun, answer] = [yield* Deferred.make<void>(), yield* Deferred.make<EdgeAnswer>()]
    const agent = (dispatch: Effect.Effect<EdgeAnswer>) =>
      listen({ port, key: "k", dispatch: () => dispatch, forwarder: makeForwarder("/nowhere") })
    const ask = Effect.promise(
      () =>
        new Promise<number>((resolve) => {
          const headers = { [agentHeaders.key]: "k" }
          http
            .get({ port, host: "127.0.0.1", agent: false, headers }, (response) => {
              response.resume()
              resolve(response.statusCode ?? 0)
            })
            .once("error", () => resolve(0))
        })
    )
    const first = yield* Scope.make()
    const waiting = Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(answer))
    yield* Scope.provide(agent(waiting), first)
    const asked = yield* Effect.forkChild(ask)
    yield* Deferred.await(begun)
    const closing = yield* Effect.forkChild(Scope.close(first, Exit.void))
    yield* agent(Effect.succeed({ _tag: "Answer", status: 204 }))
    yield* eventually("the next one answers", ask, (status) => status === 204)
    yield* Deferred.succeed(answer, { _tag: "Answer", status: 200 })
    assert.strictEqual(yield* Fiber.join(asked), 200)
    yield* Fiber.join(closing)
  })
)
