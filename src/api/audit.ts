/** Handler of `audit.list`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import { AuditLog } from "#src/store/AuditLog.ts"
import { answer } from "./answer.ts"
import { Cursors } from "./cursor.ts"
import { Api } from "./definition/api.ts"
import { AuditPage } from "./definition/audit.ts"
import { defaultPageSize } from "./definition/fields.ts"
import { RequestScope } from "./definition/scope.ts"
import { guard } from "./guard.ts"
import { fromStore } from "./problem.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "audit",
  Effect.fnUntraced(function* (handlers) {
    const log = yield* AuditLog
    const cursors = yield* Cursors
    return handlers.handleAll(
      guard(Api.groups.audit)({
        list: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { limit = defaultPageSize, cursor, ...filter } = query
          const list = `audit ${orgId}`
          const [before] = (yield* cursors.decode(list, cursor)) ?? []
          const records = yield* Effect.mapError(log.list(orgId, filter, limit + 1, before), fromStore)
          const items = records.slice(0, limit)
          const last = items.at(-1)
          return answer(AuditPage, {
            items: items.map((record) => ({ ...record, at: record.at.toISOString() })),
            nextCursor: records.length > limit && last !== undefined ? cursors.encode(list, [last.id]) : null
          })
        })
      })
    )
  })
)
