import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"

/** Batches that may come for one project in a minute. */
export const batchesPerMinute = atLeastOne("SVC_SPEED_BATCHES_PER_MINUTE", 6_000)
/** Measurements of one project that are stored in a day (UTC), and bytes of the requests that they come in. */
export const eventsPerDay = atLeastOne("SVC_SPEED_EVENTS_PER_DAY", 5_000_000)
export const bytesPerDay = atLeastOne("SVC_SPEED_BYTES_PER_DAY", 2 ** 30)
export const settings = Config.all({ batchesPerMinute, eventsPerDay, bytesPerDay })
