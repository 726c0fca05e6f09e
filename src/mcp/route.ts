/** Where agents ask. */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import { madeOnce } from "#src/api/made-once.ts"

export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    // The protocol's library is much to load, and many a process is never asked for it.
    const answers = yield* Effect.promise(() => import("./answers.ts")).pipe(
      Effect.flatMap(({ makeAnswers }) => makeAnswers(router)),
      Effect.provide(yield* Effect.context<Services>()),
      madeOnce
    )
    yield* router.add("POST", "/mcp", (request) => Effect.flatMap(answers, (answer) => answer(request)))
  })
)

type Services = Effect.Services<ReturnType<typeof import("./answers.ts").makeAnswers>>
