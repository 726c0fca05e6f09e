import { atLeastOne } from "#src/settings.ts"

/** Batches that may come for one project in a minute. */
export const batchesPerMinute = atLeastOne("SVC_SPEED_BATCHES_PER_MINUTE", 6_000)
export const settings = batchesPerMinute
