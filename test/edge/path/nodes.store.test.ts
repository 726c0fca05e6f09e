/** Questions to the nodes of the edge, through the store. */
import { randomUUID } from "node:crypto"
import { expect, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { eventually } from "#test/setup/wait.ts"

const fixture = EdgeNodes.layer.pipe(Layer.provideMerge(testDb()))

const aNode = (fault?: string) => ({ id: randomUUID(), address: "127.0.0.1", httpsPort: 8443, fault })

layer(fixture, { excludeTestServices: true })("nodes of the edge", (it) => {
  it.effect("nobody answers where no node is at work, or only one that is in trouble", () =>
    Effect.gen(function* () {
      const nodes = yield* EdgeNodes
      expect((yield* Effect.flip(nodes.ask))._tag).toBe("EdgeUnreachable")
      yield* nodes.beat(aNode("HAProxy is not installed"))
      expect(yield* nodes.live).toEqual([])
      expect((yield* Effect.flip(nodes.ask))._tag).toBe("EdgeUnreachable")
    })
  )

  it.effect("an answer comes once every live node has given it, and not from one that has left", () =>
    Effect.gen(function* () {
      const nodes = yield* EdgeNodes
      const { engine: sql } = yield* Db
      const [one, two, three] = [aNode(), aNode(), aNode()]
      yield* Effect.forEach([one, two, three], nodes.beat)
      expect((yield* nodes.live).map(({ id }) => id).sort()).toEqual([one.id, two.id, three.id].sort())
      const [before] = yield* sql<{ readonly last: string }>`select nextval('edge_question')::text as last`
      const asked = yield* Effect.forkChild(nodes.ask)
      const question = yield* eventually(
        "the question is asked",
        Effect.map(
          sql<{ readonly last: string }>`select last_value::text as last from edge_question`,
          ([now]) => (now === undefined || now.last === before?.last ? false : now.last)
        )
      )
      yield* nodes.answer(one.id, BigInt(question))
      expect(asked.pollUnsafe()).toBeUndefined()
      yield* nodes.leave(three.id)
      yield* nodes.answer(two.id, BigInt(question) - 1n)
      expect(asked.pollUnsafe()).toBeUndefined()
      yield* nodes.answer(two.id, BigInt(question))
      yield* Fiber.join(asked)
      // A later look at an earlier question takes nothing back.
      yield* nodes.answer(two.id, 1n)
      const [answered] = yield* sql<{ readonly answered: string }>`
        select answered::text from edge_node where id = ${two.id}::uuid`
      expect(answered?.answered).toBe(question)
      // One of two has answered: enough for some, and not for what none may serve as it was.
      const both = yield* Effect.forEach([nodes.ask, nodes.askAll], (ask) => Effect.forkChild(ask))
      yield* eventually(
        "both have asked",
        Effect.map(
          sql<{ readonly last: string }>`select last_value::text as last from edge_question`,
          ([now]) => BigInt(now?.last ?? 0) >= BigInt(question) + 2n
        )
      )
      yield* nodes.answer(two.id, BigInt(question) + 2n)
      yield* nodes.beat(one)
      const [some, all] = yield* Effect.forEach(both, (asked) => Effect.exit(Fiber.join(asked)))
      expect([some?._tag, all?._tag]).toEqual(["Success", "Failure"])
      yield* nodes.leave(one.id)
      yield* nodes.leave(two.id)
    })
  )
})
