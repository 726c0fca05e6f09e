/** Handlers of `budgets.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid } from "#src/api/problem.ts"
import { targetProject } from "#src/api/target.ts"
import { UsagePage } from "./api.ts"
import { BudgetUsage, type UsageRecord } from "./BudgetUsage.ts"
import { usdOf } from "./money.ts"

const items = ["server", "backups", "calls", "executions"] as const

export const layer = HttpApiBuilder.group(
  Api,
  "budgets",
  Effect.fnUntraced(function* (handlers) {
    const cursors = yield* Cursors
    const records = yield* BudgetUsage
    return handlers.handleAll(
      handlersOf(Api.groups.budgets)({
        usage: Effect.fnUntraced(function* ({ query: { from, to, limit = defaultPageSize, cursor } }) {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          if (from !== undefined && to !== undefined && from > to)
            return yield* invalid([{ pointer: "/to", message: "is before `from`" }])
          const list = `usage ${orgId} ${projectId}`
          const [day, uid, named] = (yield* cursors.decode(list, cursor)) ?? []
          const item = items.find((one) => one === named)
          const after =
            day === undefined || uid === undefined || item === undefined ? undefined : { day, uid, item }
          const found = yield* Effect.mapError(
            records.list(orgId, projectId, { from, to }, limit + 1, after),
            fromStore
          )
          const shown = found.slice(0, limit)
          const last = shown.at(-1)
          return answer(UsagePage, {
            items: shown.map(viewOf(projectId)),
            nextCursor:
              found.length > limit && last !== undefined
                ? cursors.encode(list, [last.day, last.uid, last.item])
                : null
          })
        })
      })
    )
  })
)

const viewOf =
  (projectId: string) =>
  ({ day, uid, microUsd, ...record }: UsageRecord) => ({
    date: day,
    resourceId: uid === projectId ? null : uid,
    ...record,
    usd: usdOf(microUsd)
  })
