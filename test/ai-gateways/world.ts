/** Gateways with a budget, and what their books say. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { Call, CallOutcome } from "#src/ai-gateways/Ledger.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

export const usd = 1_000_000_000

export const gatewayChange = (
  place: { readonly projectId: string; readonly production: string },
  name: string,
  spec: { readonly monthlyBudgetUsd: number; readonly allowedModels?: ReadonlyArray<AiModel> }
) =>
  ({
    action: "create",
    uid: uuid(),
    kind: "AiGateway",
    projectId: place.projectId,
    environment: "production",
    name,
    parentUid: place.production,
    spec: { allowedModels: ["svc/fast"], timeoutMs: 60_000, maxRetries: 2, redactPrompts: true, ...spec },
    managedBy: "api"
  }) as const

export type Gateway = Omit<Call, "keyId" | "model" | "mostNanoUsd"> & {
  readonly place: { readonly projectId: string; readonly production: string }
}

/** In an organization of its own. */
export const newGateway = Effect.fnUntraced(function* (monthlyBudgetUsd: number) {
  const resources = yield* Resources
  const { id: orgId } = yield* makeOrganization()
  const place = yield* makeProject(orgId, `p-${uuid().slice(-12)}`)
  const change = gatewayChange(place, "ai", { monthlyBudgetUsd })
  yield* resources.write(orgId, [change], actor)
  const gateway: Gateway = { orgId, projectId: place.projectId, gateway: change.uid, place }
  return gateway
})

export const callOf = (gateway: Gateway, mostNanoUsd: number, keyId: string | null = null): Call => ({
  ...gateway,
  keyId,
  model: "svc/fast",
  mostNanoUsd
})

export const outcomeOf = (costNanoUsd: number, more: Partial<CallOutcome> = {}): CallOutcome => ({
  inputTokens: 10,
  outputTokens: 5,
  estimated: false,
  costNanoUsd,
  status: 200,
  upstream: "first",
  latencyMs: 12,
  ...more
})

/** What is spent, held and counted in all months; the sums of the tables agree, or this fails. */
export const booksOf = Effect.fnUntraced(function* ({ orgId, gateway }: Gateway) {
  const { engine: sql } = yield* Db
  interface Sums {
    readonly spent: number
    readonly requests: number
    readonly inputTokens: number
    readonly outputTokens: number
  }
  const of = (table: string, spent: string, requests: string) => sql`
    (select jsonb_build_object('spent', coalesce(sum(${sql(spent)}), 0), 'requests', coalesce(${sql.literal(requests)}, 0),
      'inputTokens', coalesce(sum(input_tokens), 0), 'outputTokens', coalesce(sum(output_tokens), 0))
    from ${sql(table)} where org_id = ${orgId}::uuid and gateway_uid = ${gateway}::uuid)`
  // In one statement: calls may be going on.
  const [books] = yield* sql<{
    readonly counted: Sums
    readonly used: Sums
    readonly logged: Sums
    readonly reserved: number
    readonly held: number
  }>`
    select ${of("ai_gateway_month", "spent", "sum(requests)")} as counted,
      ${of("ai_gateway_usage", "spent", "sum(requests)")} as used,
      ${of("ai_gateway_request", "cost", "count(*)")} as logged,
      (select coalesce(sum(reserved), 0)::float8 from ai_gateway_month
        where org_id = ${orgId}::uuid and gateway_uid = ${gateway}::uuid) as reserved,
      (select coalesce(sum(amount), 0)::float8 from ai_gateway_reservation
        where org_id = ${orgId}::uuid and gateway_uid = ${gateway}::uuid) as held`
  if (books === undefined) return yield* Effect.die(new Error("sums answer one row"))
  assert.strictEqual(books.held, books.reserved)
  assert.deepStrictEqual(books.used, books.counted)
  assert.deepStrictEqual(books.logged, books.counted)
  return { ...books.counted, reserved: books.reserved }
})

/** The events of an organization that some endpoint wants to hear of, in order. */
export const listening = Effect.fnUntraced(function* ({ orgId }: Gateway) {
  const { engine: sql } = yield* Db
  yield* sql`insert into webhook (org_id, id, url, events, key_id, sealed)
    values (${orgId}, ${uuid()}, 'https://hooks.example.test/', '{budget.alert,budget.exceeded}', 'k', '\\x00')`
  return sql<{ readonly type: string; readonly projectId: string; readonly data: Record<string, unknown> }>`
    select e.type, e.project_id as "projectId", e.data from webhook_event e
    join webhook_delivery d on d.org_id = e.org_id and d.event_id = e.id
    where e.org_id = ${orgId} order by e.created_at, e.type`
})
