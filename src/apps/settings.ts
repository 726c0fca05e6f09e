import * as Config from "effect/Config"
import { optional } from "#src/settings.ts"

export const settings = Config.all({
  /** Runtime of the engine that instances of apps run in. Absent: the engine's own. */
  appRuntime: optional("SVC_APP_RUNTIME")
})
