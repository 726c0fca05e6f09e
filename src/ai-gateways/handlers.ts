/** Handlers of `aiGateways.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { AiGateway, AiGatewaySpec } from "#schemas/ai-gateway.ts"
import { looksLikeUid } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import { serviceStatus } from "#src/api/views.ts"
import type { ListedRecord } from "#src/store/records.ts"
import { AiGatewayView, CallPage, GatewayKeyList, UsageView } from "./api.ts"
import { GatewayKeys } from "./GatewayKeys.ts"
import { type CallRecord, GatewayUsage, type MonthUsage } from "./GatewayUsage.ts"
import { nanoUsdOf, usdOf } from "./money.ts"

const decode = Schema.decodeUnknownSync(AiGatewaySpec)

const inUsd = <A extends { readonly spent: number }>({ spent, ...sums }: A) => ({
  ...sums,
  spentUsd: usdOf(spent)
})

const monthView = ({ month, reserved, ...sums }: MonthUsage, budgetUsd: number) => ({
  month: month.toISOString(),
  ...inUsd(sums),
  budgetUsd,
  reservedUsd: usdOf(reserved),
  remainingUsd: usdOf(Math.max(0, nanoUsdOf(budgetUsd) - sums.spent - reserved))
})

const gatewayView = (record: ListedRecord, usage: MonthUsage) => {
  const spec = decode(record.spec)
  return {
    id: record.uid,
    name: record.name,
    environment: record.environment ?? "",
    status: serviceStatus(record),
    ...spec,
    conditions: record.conditions,
    usage: monthView(usage, spec.monthlyBudgetUsd),
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}

const callView = ({ cost, endedAt, ...call }: CallRecord) => ({
  ...call,
  endedAt: endedAt.toISOString(),
  costUsd: usdOf(cost)
})

export const layer = HttpApiBuilder.group(
  Api,
  "aiGateways",
  Effect.fnUntraced(function* (handlers) {
    const keys = yield* GatewayKeys
    const usage = yield* GatewayUsage
    const cursors = yield* Cursors
    const monthOf = (months: ReadonlyMap<string, MonthUsage>, uid: string) => {
      const month = months.get(uid)
      if (month === undefined) throw new Error("the usage of a gateway was not looked up")
      return month
    }
    const gateways = yield* resourceHandlers(AiGateway, {
      view: AiGatewayView,
      viewer: Effect.fnUntraced(function* (records: ReadonlyArray<ListedRecord>) {
        const { orgId } = yield* RequestScope
        const uids = records.map(({ uid }) => uid)
        const months = yield* Effect.mapError(usage.months(orgId, uids), fromStore)
        return (record: ListedRecord) => gatewayView(record, monthOf(months, record.uid))
      })
    })

    return handlers.handleAll(
      handlersOf(Api.groups.aiGateways)({
        list: gateways.list,
        create: gateways.create(({ payload: { name, ...spec } }) => Effect.succeed({ name, spec })),
        get: gateways.get,
        update: gateways.update(({ payload }) => Effect.succeed((current) => ({ ...current, ...payload }))),
        delete: gateways.delete(),
        models: () => Effect.map(targetRecord, ({ spec }) => decode(spec).allowedModels),
        listKeys: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const found = yield* Effect.mapError(keys.list(orgId, uid), fromStore)
          return answer(
            GatewayKeyList,
            found.map((key) => ({
              ...key,
              lastUsedAt: key.lastUsedAt?.toISOString() ?? null,
              revokedAt: key.revokedAt?.toISOString() ?? null,
              createdAt: key.createdAt.toISOString()
            }))
          )
        }),
        createKey: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const { uid } = yield* targetRecord
          const actor = { ...caller.actor, outcome: 201 }
          const made = yield* Effect.mapError(
            keys.create(orgId, uid, payload.name, actor, reservation),
            fromStore
          )
          if (Option.isNone(made))
            return yield* problem(409, "being_deleted", "The AI gateway is being deleted")
          return { ...made.value, secret: Redacted.value(made.value.secret) }
        }),
        revokeKey: Effect.fnUntraced(function* ({ params: { keyId } }) {
          const { orgId, caller } = yield* RequestScope
          const { uid } = yield* targetRecord
          if (!looksLikeUid(keyId)) return yield* notFound("key of this AI gateway")
          const revoked = yield* Effect.mapError(keys.revoke(orgId, uid, keyId, caller.actor), fromStore)
          return revoked ? { ok: true as const } : yield* notFound("key of this AI gateway")
        }),
        usage: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { uid, spec } = yield* targetRecord
          const [months, { models, keys, days }] = yield* Effect.mapError(
            Effect.all([usage.months(orgId, [uid]), usage.parts(orgId, uid)], { concurrency: 2 }),
            fromStore
          )
          return answer(UsageView, {
            ...monthView(monthOf(months, uid), decode(spec).monthlyBudgetUsd),
            models: models.map(inUsd),
            keys: keys.map(inUsd),
            ...(query.granularity === "day" ? { days: days.map(inUsd) } : {})
          })
        }),
        requests: Effect.fnUntraced(function* ({ query: { limit = defaultPageSize, cursor } }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const list = `calls ${orgId} ${uid}`
          const [before] = (yield* cursors.decode(list, cursor)) ?? []
          const found = yield* Effect.mapError(usage.calls(orgId, uid, limit + 1, before), fromStore)
          const { items, nextCursor } = cursors.page(list, found, limit, (last) => [last.id])
          return answer(CallPage, {
            items: items.map(callView),
            nextCursor
          })
        })
      })
    )
  })
)
