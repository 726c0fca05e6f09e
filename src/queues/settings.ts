import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"

/** What one queue may hold, and all queues of one organization. */
export const settings = Config.all({
  queueMessages: atLeastOne("SVC_QUEUE_MAX_MESSAGES", 1_000_000),
  queueMegabytes: atLeastOne("SVC_QUEUE_MAX_MB", 1_024),
  orgMessages: atLeastOne("SVC_ORG_QUEUES_MAX_MESSAGES", 5_000_000),
  orgMegabytes: atLeastOne("SVC_ORG_QUEUES_MAX_MB", 5_120)
})
