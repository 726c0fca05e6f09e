/** What keeps a database from being restorable, for whoever shows the database's condition. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Ledger, type LineageRef, type Trouble } from "./Ledger.ts"

/** Without a repository there is nothing to tell. */
export const BackupHealth = Context.Reference<
  (ref: LineageRef) => Effect.Effect<Option.Option<Trouble>, StoreUnavailable>
>("svc/backups/BackupHealth", { defaultValue: () => () => Effect.succeedNone })

export const layer = Layer.effect(
  BackupHealth,
  Effect.map(Ledger, ({ trouble }) => trouble)
)
