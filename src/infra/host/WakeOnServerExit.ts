/** What lives in a server that has just ended is looked at now, and not only when its next look would be due. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { AppConfig } from "#src/config.ts"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import { dueNow } from "#src/store/work-rows.ts"
import { Host } from "./Host.ts"
import { makeServerDeaths } from "./server-exits.ts"

const everyLook = "2 seconds"

/** Without an index: it is rare, and the organization is not known. */
const wake = (sql: Sql, uids: ReadonlyArray<string>) => sql`
  with woken as (
    update work w set ${dueNow(sql)}
    where w.uid in (select jsonb_array_elements_text(${sql.json(uids)}::jsonb)::uuid)
    returning w.uid
  )
  select pg_notify('svc_work', '') from woken limit 1`

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const { dataDir } = yield* AppConfig
    const { kills } = (yield* Host).holding
    const deaths = makeServerDeaths(
      dataDir,
      Effect.orElseSucceed(kills, () => new Map())
    )
    /** Whose end is not stored yet: while the store is away they stay here. */
    const ended = new Set<string>()
    yield* Effect.gen(function* () {
      for (const uid of yield* deaths) ended.add(uid)
      if (ended.size === 0) return
      yield* answered("look at what lived in servers that ended")(repeatable(wake(sql, [...ended])))
      ended.clear()
    }).pipe(
      Effect.repeat(Schedule.spaced(everyLook)),
      (loop) => supervise("see to servers that have ended", loop),
      Effect.forkScoped
    )
  })
)
