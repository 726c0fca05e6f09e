/** Events of command lines, and the steps of organizations. */
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type Step, stepNames, type TelemetryEvent } from "./api.ts"
import { digestOf, type Key } from "./digests.ts"

export interface StepCount {
  readonly name: Step
  readonly count: number
  readonly firstAt: Date | null
  readonly lastAt: Date | null
}

export class TelemetryRecords extends Context.Service<
  TelemetryRecords,
  {
    readonly add: (key: Key, events: ReadonlyArray<TelemetryEvent>) => Effect.Effect<void, StoreUnavailable>
    /** Each step, in the order of `stepNames`, from `since` on and before `until`. */
    readonly funnel: (
      orgId: string,
      since: Date,
      until: Date
    ) => Effect.Effect<ReadonlyArray<StepCount>, StoreUnavailable>
  }
>()("svc/telemetry/TelemetryRecords") {
  static readonly layer = Layer.effect(
    TelemetryRecords,
    Effect.gen(function* () {
      const { api, engine } = yield* Db
      return TelemetryRecords.of({
        // Not repeated: a try whose answer was lost would count twice.
        add: Effect.fn("TelemetryRecords.add")(function* (key, events) {
          const digest = (label: "anonymous" | "organization", id: string | undefined) =>
            id === undefined ? null : digestOf(key, label, id).toString("hex")
          const rows = events.map(({ name, at, anonymousId, organizationId, properties }) => ({
            name,
            at: DateTime.formatIso(at),
            anonymous: digest("anonymous", anonymousId),
            organization: digest("organization", organizationId),
            ...properties
          }))
          yield* orUnavailable(engine`
            insert into telemetry_event (name, at, anonymous_digest, organization_digest, channel, os, arch)
            select name, at, decode(anonymous, 'hex'), decode(organization, 'hex'), channel, os, arch
            from jsonb_to_recordset(${engine.json(rows)}::jsonb)
              as e(name text, at timestamptz, anonymous text, organization text, channel text, os text, arch text)`)
        }),
        // Index: the primary key.
        funnel: Effect.fn("TelemetryRecords.funnel")(function* (orgId, since, until) {
          const rows = yield* repeatable(api<StepCount>`
            select name, count(*)::int as count, min(at) as "firstAt", max(at) as "lastAt" from telemetry_step
            where org_id = ${orgId}::uuid and ${inOrg(api, orgId)}
              and at >= ${since}::timestamptz and at < ${until}::timestamptz
            group by name`)
          return stepNames.map(
            (name) => rows.find((row) => row.name === name) ?? { name, count: 0, firstAt: null, lastAt: null }
          )
        })
      })
    })
  )
}
