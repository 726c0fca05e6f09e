/** How much queues may hold, and how much of it a process delivers at once. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { settings } from "./settings.ts"

const mebibyte = 1024 * 1024

export interface QueueLimits {
  readonly queueMessages: number
  readonly queueBytes: number
  /** In all queues of an organization. */
  readonly orgMessages: number
  readonly orgBytes: number
  /** Batches under way in this process. */
  readonly batches: number
  /** Bytes of messages in them. Each has several copies while it is sent. */
  readonly batchBytes: number
}

export const QueueLimits = Context.Reference<QueueLimits>("svc/queues/QueueLimits", {
  defaultValue: () => ({
    queueMessages: 1_000_000,
    queueBytes: 1024 * mebibyte,
    orgMessages: 5_000_000,
    orgBytes: 5 * 1024 * mebibyte,
    batches: 256,
    batchBytes: 64 * mebibyte
  })
})

/** As the settings of the process say. */
export const layer = Layer.effect(
  QueueLimits,
  Effect.gen(function* () {
    const { queueMessages, queueMegabytes, orgMessages, orgMegabytes } = yield* settings
    return {
      ...(yield* QueueLimits),
      queueMessages,
      queueBytes: queueMegabytes * mebibyte,
      orgMessages,
      orgBytes: orgMegabytes * mebibyte
    }
  })
)
