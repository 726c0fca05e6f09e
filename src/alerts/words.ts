/** Words of alerts that the API, the store and the command line have in common. */
import * as Schema from "effect/Schema"

export const AlertState = Schema.Literals(["ok", "pending", "firing", "no_data", "silenced"]).annotate({
  identifier: "AlertState",
  description:
    "The condition does not hold; holds, not yet for long enough; has held for long enough; cannot be told because nothing is measured; is told to nobody"
})
export type AlertState = typeof AlertState.Type
/** As it is without a silence. */
export const UnderlyingState = Schema.Literals(["ok", "pending", "firing", "no_data"])

/** What stands in the history of an alert. Conditions that end before the alert fires do not. */
export const AlertChange = Schema.Literals([
  "firing",
  "resolved",
  "notified",
  "no_data",
  "data_lost",
  "data_back",
  "silenced",
  "unsilenced",
  "silence_ended",
  "acknowledged"
]).annotate({
  identifier: "AlertChange",
  description:
    "`notified`: it was told later than it fired; `data_lost`: it goes on firing though nothing new is measured"
})

/** Why an alert resolved. */
export const ResolutionReason = Schema.Literals(["cleared", "disabled", "resource_gone", "deleted"])

export const AlertDeliveryState = Schema.Literals([
  "waiting",
  "delivered",
  "failed",
  "undeliverable",
  "withheld"
]).annotate({
  identifier: "AlertDeliveryState",
  description:
    "Mail is delivered when the mail server has taken it, undeliverable where no member has the address, and withheld where alerts of the organization have sent as many mails as they may in an hour"
})
export type AlertDeliveryState = typeof AlertDeliveryState.Type

/** The resource that an alert is about. */
export const AlertResource = Schema.Struct({
  id: Schema.String.annotate({ format: "uuid" }),
  kind: Schema.String,
  name: Schema.String,
  environment: Schema.NullOr(Schema.String)
}).annotate({ identifier: "AlertResource" })
export type AlertResource = typeof AlertResource.Type
