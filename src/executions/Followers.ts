/** Who keeps what executions print. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type FollowersService, makeFollowers } from "#src/container-logs/followers.ts"
import { Logs } from "./Logs.ts"
import { ExecutionOptions } from "./options.ts"
import { Runs } from "./Runs.ts"

export class Followers extends Context.Service<Followers, FollowersService>()("svc/executions/Followers") {
  static readonly layer = Layer.effect(
    Followers,
    Effect.gen(function* () {
      const runs = yield* Runs
      return yield* makeFollowers(yield* Logs, {
        ...(yield* ExecutionOptions),
        ended: (ref) => Effect.ignore(runs.wakeReconciler(ref))
      })
    })
  )
}
