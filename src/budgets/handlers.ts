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
import { UsagePage, usageItems } from "./api.ts"
import { BudgetUsage, type UsageRecord } from "./BudgetUsage.ts"
import { usdOf } from "./money.ts"

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
          const item = usageItems.find((one) => one === named)
          const after =
            day === undefined || uid === undefined || item === undefined ? undefined : { day, uid, item }
          const found = yield* Effect.mapError(
            records.list(orgId, projectId, { from, to }, limit + 1, after),
            fromStore
          )
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [
            last.day,
            last.uid,
            last.item
          ])
          return answer(UsagePage, {
            items: items.map(viewOf(projectId)),
            nextCursor
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
