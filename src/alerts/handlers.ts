/** Handlers of `alerts.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Schema from "effect/Schema"
import { Alert, AlertSpec, mostAlerts, thresholdOf } from "#schemas/alert.ts"
import { measurements } from "#schemas/signal.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetProject, targetRecord } from "#src/api/target.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ListedRecord } from "#src/store/records.ts"
import { AlertHistory, type AlertHistoryEntry } from "./AlertHistory.ts"
import { type AlertStanding, Alerts } from "./Alerts.ts"
import { AlertHistoryPage, AlertView } from "./api.ts"

const storedSpec = Schema.decodeUnknownSync(AlertSpec)

export const layer = HttpApiBuilder.group(
  Api,
  "alerts",
  Effect.fnUntraced(function* (handlers) {
    const states = yield* Alerts
    const entries = yield* AlertHistory
    const cursors = yield* Cursors
    const resources = yield* Resources
    const alerts = yield* resourceHandlers(Alert, {
      view: AlertView,
      viewer: Effect.fnUntraced(function* (records) {
        const [first] = records
        const uids = records.map(({ uid }) => uid)
        const standing =
          first === undefined
            ? new Map<string, AlertStanding>()
            : yield* Effect.mapError(states.standing(first.orgId, uids), fromStore)
        return (record) => alertView(record, standing.get(record.uid))
      })
    })

    return handlers.handleAll(
      handlersOf(Api.groups.alerts)({
        list: alerts.list,
        create: alerts.create(
          Effect.fnUntraced(function* ({ payload: { name, ...spec } }) {
            const { orgId } = yield* RequestScope
            const { projectId } = yield* targetProject
            const others = yield* Effect.mapError(resources.listKind(orgId, Alert.name, projectId), fromStore)
            if (others.length >= mostAlerts && !others.some((other) => other.name === name))
              return yield* problem(
                409,
                "too_many_alerts",
                `A project has ${mostAlerts} alerts at most; delete one`
              )
            return { name, spec }
          })
        ),
        get: alerts.get,
        update: alerts.update(({ payload }) => Effect.succeed((current) => ({ ...current, ...payload }))),
        delete: alerts.delete(),
        silence: Effect.fnUntraced(function* ({ payload: { durationSeconds, reason = null } }) {
          const { orgId, caller } = yield* RequestScope
          const record = yield* targetRecord
          const done = yield* Effect.mapError(
            states.silence({ orgId, uid: record.uid }, { seconds: durationSeconds, reason }, caller.actor),
            fromStore
          )
          if (!done)
            return yield* problem(409, "not_in_force", `The alert "${record.name}" is not in force yet`)
          return yield* alerts.viewOf(record)
        }),
        acknowledge: Effect.fnUntraced(function* () {
          const { orgId, caller } = yield* RequestScope
          const record = yield* targetRecord
          const done = yield* Effect.mapError(
            states.acknowledge({ orgId, uid: record.uid }, caller.actor),
            fromStore
          )
          if (!done) return yield* problem(409, "not_firing", `The alert "${record.name}" does not fire`)
          return yield* alerts.viewOf(record)
        }),
        history: Effect.fnUntraced(function* ({ query: { limit = defaultPageSize, cursor } }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const list = `alert history ${uid}`
          const [before] = (yield* cursors.decode(list, cursor)) ?? []
          const found = yield* Effect.mapError(entries.list(orgId, uid, limit + 1, before), fromStore)
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [last.seq])
          return answer(AlertHistoryPage, {
            items: items.map(entryView),
            nextCursor
          })
        })
      })
    )
  })
)

/** The store has its own spelling of times. */
const spelled = (time: string): string => new Date(time).toISOString()
const instant = (time: string | null): string | null => (time === null ? null : spelled(time))

const alertView = (record: ListedRecord, standing: AlertStanding | undefined) => {
  const spec = storedSpec(record.spec)
  const { state = "no_data", measured = null, incident = null, silence = null } = standing ?? {}
  return {
    id: record.uid,
    name: record.name,
    ...spec,
    unavailable: measurements[spec.condition.signal].unavailable ?? null,
    threshold: thresholdOf(spec.condition) ?? 0,
    state: silence === null ? state : ("silenced" as const),
    underlyingState: state,
    since: standing?.since.toISOString() ?? null,
    measured: measured === null ? null : { ...measured, at: spelled(measured.at) },
    incident:
      incident === null
        ? null
        : {
            ...incident,
            notifiedAt: instant(incident.notifiedAt),
            acknowledgedAt: instant(incident.acknowledgedAt),
            dataLostAt: instant(incident.dataLostAt)
          },
    silence: silence === null ? null : { ...silence, until: spelled(silence.until) },
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}

const entryView = ({ seq: _, at, ...entry }: AlertHistoryEntry) => ({ ...entry, at: at.toISOString() })
