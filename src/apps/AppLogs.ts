/** What instances of apps print: the last of it, for as long as they are kept. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type FollowersService, makeFollowers } from "#src/container-logs/followers.ts"
import { type LogStore, makeLogStore } from "#src/container-logs/log-store.ts"
import { Db } from "#src/store/Db.ts"
import { Apps } from "./Apps.ts"
import { AppOptions } from "./options.ts"

export class AppLogs extends Context.Service<AppLogs, LogStore>()("svc/apps/AppLogs") {
  static readonly layer = Layer.effect(
    AppLogs,
    Effect.gen(function* () {
      const { logBytes } = yield* AppOptions
      return makeLogStore(yield* Db, {
        of: "app_instance",
        pieces: "app_log",
        key: "instance_uid",
        endedAt: "ended_at",
        ring: logBytes
      })
    })
  )
}

export class AppFollowers extends Context.Service<AppFollowers, FollowersService>()("svc/apps/AppFollowers") {
  static readonly layer = Layer.effect(
    AppFollowers,
    Effect.gen(function* () {
      const apps = yield* Apps
      const { followerMs } = yield* AppOptions
      return yield* makeFollowers(yield* AppLogs, {
        followerMs,
        logBytes: undefined,
        // It has ended: another one may have to take its place.
        ended: ({ orgId, uid }) => Effect.ignore(apps.wakeReconciler(orgId, uid))
      })
    })
  )
}
