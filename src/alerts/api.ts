/** Alerts: rules about what is measured of a project's resources, and what became of them. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { Alert, AlertChannel, AlertCondition, AlertScope, AlertSpec, Severity } from "#schemas/alert.ts"
import { DisplayName, lineOf } from "#schemas/display-text.ts"
import { checkedInputOf } from "#schemas/input.ts"
import { Id, page, pageQuery, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inProject, resourceOperations } from "#src/api/definition/resource-group.ts"
import { AlertChange, AlertDeliveryState, AlertResource, AlertState, UnderlyingState } from "./words.ts"

export const AlertView = Schema.Struct({
  id: Id,
  name: Schema.String,
  enabled: Schema.Boolean,
  severity: Severity,
  scope: Schema.toType(AlertScope),
  condition: Schema.toType(AlertCondition),
  channels: Schema.Array(AlertChannel),
  cooldownSeconds: Schema.Int,
  unavailable: Schema.NullOr(Schema.String).annotate({
    description: "Why nothing measures its signal, so that it never fires; null: something does"
  }),
  threshold: Schema.Finite.annotate({
    description: "That of the condition, or the usual one of its signal"
  }),
  state: AlertState,
  underlyingState: UnderlyingState.annotate({ description: "The state whatever a silence says" }),
  since: Schema.NullOr(Timestamp).annotate({ description: "null: it is not in force yet" }),
  measured: Schema.NullOr(
    Schema.Struct({ value: Schema.Finite, resource: AlertResource, at: Timestamp })
  ).annotate({ description: "The worst of what is measured now; null: nothing is, in the last 90 seconds" }),
  incident: Schema.NullOr(
    Schema.Struct({
      id: Id,
      resource: Schema.NullOr(AlertResource),
      value: Schema.NullOr(Schema.Finite),
      notifiedAt: Schema.NullOr(Timestamp).annotate({
        description: "null: a silence, the cooldown or an acknowledgement kept it back"
      }),
      acknowledgedAt: Schema.NullOr(Timestamp),
      acknowledgedBy: Schema.NullOr(Schema.String),
      dataLostAt: Schema.NullOr(Timestamp).annotate({
        description: "Nothing new is measured since: it fires by old values"
      })
    })
  ).annotate({ description: "Present while it fires" }),
  silence: Schema.NullOr(
    Schema.Struct({ until: Timestamp, by: Schema.String, reason: Schema.NullOr(Schema.String) })
  ),
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "Alert" })

export const AlertHistoryEntryView = Schema.Struct({
  id: Id,
  at: Timestamp,
  change: AlertChange,
  value: Schema.NullOr(Schema.Finite),
  threshold: Schema.NullOr(Schema.Finite),
  resource: Schema.NullOr(AlertResource),
  incidentId: Schema.NullOr(Id).annotate({ description: "The same from firing to resolution" }),
  actor: Schema.NullOr(Schema.String).annotate({ description: "Who did it; null: nobody" }),
  reason: Schema.NullOr(Schema.String).annotate({
    description: "Of a silence what was given; of a resolution cleared, disabled or resource_gone"
  }),
  deliveries: Schema.Array(
    Schema.Struct({
      channel: Schema.Literals(["mail", "webhook"]),
      destination: Schema.NullOr(Schema.String).annotate({
        description: "An address, or the id of a webhook; null: all owners and admins"
      }),
      state: AlertDeliveryState
    })
  ).annotate({ description: "Whom it was told; kept for 30 days" })
}).annotate({ identifier: "AlertHistoryEntry" })
export const AlertHistoryPage = page(AlertHistoryEntryView)

const day = 86_400
const input = checkedInputOf(AlertSpec).fields

const alerts = resourceOperations({
  group: "alerts",
  kind: Alert,
  parent: inProject,
  segment: "alerts",
  param: "alertId",
  view: AlertView
})
const { one, params, target } = alerts

export const Alerts = group(
  "alerts",
  "Rules about what is measured of a project's resources, and what became of them."
).add(
  alerts.list({ summary: "List alerts by name, with their states" }),
  alerts.create({ payload: Schema.Struct({ name: DisplayName, ...input }), success: AlertView }),
  alerts.get({ summary: "Read an alert, with its state and what is measured now" }),
  alerts.update({
    summary: "Change an alert: scope, condition and channels each as a whole",
    payload: Schema.Struct({
      ...input,
      severity: Schema.optionalKey(input.severity),
      scope: Schema.optionalKey(input.scope),
      condition: Schema.optionalKey(input.condition)
    })
  }),
  alerts.delete({ summary: "Delete an alert and its history" }),
  HttpApiEndpoint.post("silence", `${one}/silence`, {
    params,
    payload: Schema.Struct({
      durationSeconds: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 90 * day })).annotateKey({
        description: "From now on; 0 ends a silence"
      }),
      reason: Schema.optionalKey(lineOf(500))
    }),
    success: AlertView,
    error: bodyProblems()
  }).annotateMerge(
    operation("alerts.silence", "write", "admin", "Tell nobody that an alert fires, for a while", { target })
  ),
  HttpApiEndpoint.post("acknowledge", `${one}/acknowledge`, {
    params,
    success: AlertView,
    error: problems()
  }).annotateMerge(
    operation("alerts.acknowledge", "write", "member", "Say that somebody sees to an alert that fires", {
      target
    })
  ),
  HttpApiEndpoint.get("history", `${one}/history`, {
    params,
    query: pageQuery,
    success: AlertHistoryPage,
    error: problems()
  }).annotateMerge(
    operation("alerts.history", "read", "member", "List what became of an alert, newest first", { target })
  )
)
