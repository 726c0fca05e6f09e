/** Where agents ask. */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"

export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const context = yield* Effect.context<Services>()
    // The protocol's library is much to load, and many a process is never asked for it.
    const answers = yield* Effect.promise(() => import("./answers.ts")).pipe(
      Effect.flatMap(({ makeAnswers }) => makeAnswers(router)),
      Effect.provide(context),
      // Whoever asked first may go away meanwhile.
      Effect.uninterruptible,
      Effect.cached
    )
    yield* router.add("POST", "/mcp", (request) => Effect.flatMap(answers, (answer) => answer(request)))
  })
)

type Services = Effect.Services<ReturnType<typeof import("./answers.ts").makeAnswers>>
