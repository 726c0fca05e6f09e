/** What executions print. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type LogStore, makeLogStore } from "#src/container-logs/log-store.ts"
import { Db } from "#src/store/Db.ts"

export class Logs extends Context.Service<Logs, LogStore>()("svc/executions/Logs") {
  static readonly layer = Layer.effect(
    Logs,
    Effect.map(Db, (db) =>
      makeLogStore(db, {
        of: "execution",
        pieces: "execution_log",
        key: "execution_uid",
        endedAt: "finished_at"
      })
    )
  )
}
