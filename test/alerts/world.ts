/** Alerts over recorded values, on a store of its own whose rounds of evaluation a test begins, and spaces, itself. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { AlertSpec } from "#schemas/alert.ts"
import type { Measurement } from "#schemas/signal.ts"
import { AlertHistory } from "#src/alerts/AlertHistory.ts"
import { AlertRules } from "#src/alerts/AlertRules.ts"
import { Alerts } from "#src/alerts/Alerts.ts"
import { evaluate } from "#src/alerts/evaluate.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { fixture } from "#test/webhooks/setting.ts"

export const stack = Layer.mergeAll(AlertRules.layer, Alerts.layer, AlertHistory.layer, Resources.layer).pipe(
  Layer.provideMerge(fixture)
)

const spec = Schema.decodeUnknownSync(AlertSpec)
export const full = { condition: { signal: "storage.capacity", durationSeconds: 0 } } as const
/** Complete, with every channel. */
export const specOf = (values: object = {}): AlertSpec =>
  spec({
    severity: "warning",
    scope: {},
    channels: [{ kind: "webhook", destination: null }],
    cooldownSeconds: 0,
    ...full,
    ...values
  })

/** The next round comes so many seconds after the last one. */
export const round = Effect.fn(function* (passed = 15) {
  const { engine: sql } = yield* Db
  yield* sql`update alert_turn set looked_at = now() - make_interval(secs => ${passed}::float8), due_at = now()`
  return yield* evaluate
})

/** A project of an organization of its own, with a webhook that wants all. */
export const place = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const rules = yield* AlertRules
  const alerts = yield* Alerts
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  const webhookId = uuid()
  yield* sql`insert into webhook (org_id, id, url, events, key_id, sealed)
    values (${orgId}, ${webhookId}, 'https://hooks.example.test/', '{alert.firing,alert.resolved}', 'k', '\\x00')`

  const resource = Effect.fn(function* (kind: string, name: string, environment = "production") {
    const uid = uuid()
    const [parent] = yield* sql<{ readonly uid: string }>`
      select uid from resource where project_id = ${projectId} and kind = 'Environment' and name = ${environment}`
    const parentUid = parent?.uid ?? production
    const change = { action: "create", managedBy: "api", spec: {}, uid, kind, name, projectId } as const
    yield* resources.write(orgId, [{ ...change, environment, parentUid }], actor)
    return uid
  })
  /** What was measured so many seconds ago takes the place of all that was measured before. */
  const measure = (
    uid: string,
    values: Partial<Record<Measurement, number>>,
    age = 0,
    source: "host" | "store" = "host"
  ) => sql`
    insert into metric_now (org_id, uid, source, at, values, kept)
    values (${orgId}, ${uid}, ${source}, now() - make_interval(secs => ${age}::float8), ${sql.json(values)}::jsonb, true)
    on conflict (org_id, uid, source) do update set at = excluded.at, values = excluded.values`
  const put = (uid: string, config: AlertSpec, fence = 1n, name = "full") =>
    rules.put({ orgId, uid, projectId, name, config, fence })
  const alert = Effect.fn(function* (values: object = {}, name = "full") {
    const uid = uuid()
    yield* put(uid, specOf(values), 1n, name)
    return uid
  })
  const standing = Effect.fn(function* (uid: string) {
    const found = (yield* alerts.standing(orgId, [uid])).get(uid)
    return found ?? (yield* Effect.die(new Error("the alert is not in force")))
  })
  const state = (uid: string) => Effect.map(standing(uid), ({ state }) => state)
  /** What has become of it, oldest first. */
  const history = Effect.fn(function* (uid: string) {
    return (yield* (yield* AlertHistory).list(orgId, uid, 100)).toReversed()
  })
  const changes = (uid: string) => Effect.map(history(uid), (entries) => entries.map(({ change }) => change))
  /** What webhooks are told, oldest first. */
  const events = sql<{
    readonly type: string
    readonly projectId: string
    readonly data: Readonly<Record<string, unknown>>
    readonly deliveries: number
  }>`
    select e.type, e.project_id as "projectId", e.data,
      (select count(*)::int from webhook_delivery d where d.event_id = e.id) as deliveries
    from webhook_event e where e.org_id = ${orgId}::uuid order by e.created_at, e.type`
  const told = Effect.map(events, (all) => all.map(({ type }) => type))
  return {
    sql,
    orgId,
    projectId,
    webhookId,
    production,
    resources,
    rules,
    alerts,
    resource,
    measure,
    put,
    alert,
    standing,
    state,
    history,
    changes,
    events,
    told
  }
})
