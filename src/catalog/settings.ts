import * as Config from "effect/Config"
import { optional } from "#src/settings.ts"

export const settings = Config.all({
  /** A file with prices, limits and names of regions. Absent: those that are built in. */
  file: optional("SVC_CATALOG")
})
