/** Handler of `audit.list`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import { AgentGrants } from "#src/agents/AgentGrants.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore } from "#src/api/problem.ts"
import { AuditReader } from "../AuditReader.ts"
import { AuditPage } from "../api/audit.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "audit",
  Effect.fnUntraced(function* (handlers) {
    const log = yield* AuditReader
    const grants = yield* AgentGrants
    const cursors = yield* Cursors
    return handlers.handleAll(
      handlersOf(Api.groups.audit)({
        list: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { limit = defaultPageSize, cursor, ...filter } = query
          const list = `audit ${orgId}`
          const [before] = (yield* cursors.decode(list, cursor)) ?? []
          const records = yield* Effect.mapError(log.list(orgId, filter, limit + 1, before), fromStore)
          const { items, nextCursor } = cursors.page(list, records, limit, (last) => [last.id])
          const grantIds = new Set(items.flatMap(({ principal }) => grantOf(principal) ?? []))
          const names = yield* Effect.mapError(grants.names(orgId, [...grantIds]), fromStore)
          const agents = new Map(names.map(({ grantId, ...agent }) => [grantId, agent]))
          return answer(AuditPage, {
            items: items.map((record) => ({
              ...record,
              at: record.at.toISOString(),
              agent: agents.get(grantOf(record.principal) ?? "") ?? null
            })),
            nextCursor
          })
        })
      })
    )
  })
)

const grantOf = (principal: string): string | undefined => /^grant:([0-9a-f-]{36})$/.exec(principal)?.[1]
