/** A node of the edge that is at work as far as the store knows: it answers questions, and serves nothing. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { EdgeNodes, edgeChannel } from "#src/edge/EdgeNodes.ts"
import { Db } from "#src/store/Db.ts"
import { uuid } from "./fixtures.ts"

/** At work as long as the scope is open. */
export const answeringNode = Effect.fnUntraced(function* (
  databaseUrl: string,
  at: { readonly address: string; readonly httpsPort: number } = { address: "127.0.0.1", httpsPort: 1 }
) {
  const context = yield* Layer.build(
    EdgeNodes.layer.pipe(Layer.provideMerge(Db.layer({ url: Redacted.make(databaseUrl) })))
  )
  yield* Effect.gen(function* () {
    const nodes = yield* EdgeNodes
    const { notifications } = yield* Db
    const id = uuid()
    const beat = nodes.beat({ id, ...at, fault: undefined })
    yield* Effect.acquireRelease(beat, () => Effect.orDie(nodes.leave(id)))
    yield* Effect.forkScoped(Effect.repeat(beat, Schedule.spaced("3 seconds")))
    const listens = yield* Deferred.make<void>()
    yield* notifications(edgeChannel).pipe(
      Stream.runForEach((told) => {
        if (told === undefined) return Deferred.succeed(listens, undefined)
        const question = /^ask (\d+)$/.exec(told)?.[1]
        return question === undefined ? Effect.void : nodes.answer(id, BigInt(question))
      }),
      Effect.forkScoped
    )
    yield* Deferred.await(listens)
  }).pipe(Effect.provide(context))
})
