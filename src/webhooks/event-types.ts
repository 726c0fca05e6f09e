/** What organizations can be told of. Clients load this as well. */

/** In the order in which endpoints list them. */
export const eventTypes = [
  "deploy.failed",
  "budget.alert",
  "budget.exceeded",
  "alert.firing",
  "alert.resolved",
  "certificate.renewal_failed"
] as const
export type EventType = (typeof eventTypes)[number]

/** What `webhooks.test` sends. Nobody subscribes to it. */
export const testType = "webhook.test"

/** Each type once, in the order above. */
export const canonical = (types: ReadonlyArray<EventType>): ReadonlyArray<EventType> =>
  eventTypes.filter((type) => types.includes(type))
