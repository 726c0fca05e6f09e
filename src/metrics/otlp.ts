/**
 * Sends what resources have now to the operator's collector, once a minute by one of the processes: gauges by OTLP/HTTP in JSON
 * (OpenTelemetry Protocol 1.9, and the proto3 JSON mapping). What a collector does not take is not kept for it: the next
 * minute's numbers are newer. The metrics of the processes themselves go there too (`telemetry` in `src/main.ts`).
 */
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as Layer from "effect/Layer"
import { type Measurement, measurementNames, measurements, type Unit } from "#schemas/signal.ts"
import { AppConfig } from "#src/config.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import { freshSeconds } from "./CurrentMetrics.ts"
import { inTurns } from "./turns.ts"

/** Resources of one request. */
const batch = 500
const answerWithin = "10 seconds"

interface Row {
  readonly orgId: string
  readonly organization: string
  readonly uid: string
  readonly source: string
  readonly kind: string
  readonly name: string
  readonly project: string | null
  readonly environment: string | null
  readonly atMs: number
  readonly values: Readonly<Record<string, number>>
}

/** Of all organizations, in the order of the primary key, which is the index. */
const rowsAfter = (sql: Sql, last: Row | undefined) =>
  repeatable(sql<Row>`
    select m.org_id as "orgId", o.slug as organization, m.uid, m.source, r.kind, r.name,
      case when r.kind = 'Project' then r.name else p.name end as project,
      case when r.kind = 'Environment' then r.name else r.environment end as environment,
      floor(extract(epoch from m.at) * 1000)::float8 as "atMs", m.values
    from metric_now m join organization o on o.id = m.org_id
    join resource r on r.org_id = m.org_id and r.uid = m.uid and r.deleted_at is null
    left join resource p on p.org_id = r.org_id and p.uid = r.project_id
    where m.at between now() - make_interval(secs => ${freshSeconds}::int)
        and now() + make_interval(secs => ${freshSeconds}::int)
      and (${last === undefined} or (m.org_id, m.uid, m.source)
        > (${last?.orgId ?? null}::uuid, ${last?.uid ?? null}::uuid, ${last?.source ?? null}::text))
    order by m.org_id, m.uid, m.source limit ${batch}::int`)

/** One round. */
export const send = (url: string) =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const client = HttpClient.filterStatusOk(yield* HttpClient.HttpClient)
    let last: Row | undefined
    do {
      const rows: ReadonlyArray<Row> = yield* rowsAfter(sql, last)
      if (rows.length > 0) {
        const request = HttpClientRequest.bodyJsonUnsafe(
          HttpClientRequest.post(`${url.replace(/\/+$/, "")}/v1/metrics`),
          exportRequest(rows)
        )
        // Read to its end, or its connection would not serve the next.
        const answer = Effect.flatMap(client.execute(request), (response) => response.text)
        yield* Effect.timeout(answer, answerWithin)
      }
      last = rows.length < batch ? undefined : rows.at(-1)
    } while (last !== undefined)
  })

/** In the notation of the Unified Code for Units of Measure, as OpenTelemetry asks for. */
const units: Readonly<Record<Unit, string>> = {
  boolean: "1",
  bytes: "By",
  bytes_per_second: "By/s",
  count: "1",
  milliseconds: "ms",
  per_minute: "1/min",
  per_second: "1/s",
  percent: "%",
  seconds: "s"
}

const exportRequest = (rows: ReadonlyArray<Row>) => ({
  resourceMetrics: [
    {
      resource: { attributes: attributes({ "service.name": "svc.resources" }) },
      scopeMetrics: [{ scope: { name: "svc.resources" }, metrics: measurementNames.flatMap(gauge(rows)) }]
    }
  ]
})

const gauge = (rows: ReadonlyArray<Row>) => (name: Measurement) => {
  const dataPoints = rows.flatMap((row) => {
    const value = row.values[name]
    return value === undefined
      ? []
      : [{ attributes: attributesOf(row), timeUnixNano: `${row.atMs}000000`, asDouble: value }]
  })
  const { meaning, unit } = measurements[name]
  return dataPoints.length === 0
    ? []
    : [{ name: `svc.${name}`, description: meaning, unit: units[unit], gauge: { dataPoints } }]
}

const attributesOf = ({ organization, project, environment, kind, name, uid }: Row) =>
  attributes({
    organization,
    ...(project === null ? {} : { project }),
    ...(environment === null ? {} : { environment }),
    kind,
    name,
    uid
  })

const attributes = (values: Readonly<Record<string, string>>) =>
  Object.entries(values).map(([key, stringValue]) => ({ key, value: { stringValue } }))

export const layer = Layer.unwrap(
  Effect.map(AppConfig, ({ otlpUrl }) =>
    otlpUrl === undefined
      ? Layer.empty
      : Layer.effectDiscard(
          inTurns({ name: "otlp", does: "send metrics to the collector", seconds: 60 }, send(otlpUrl))
        ).pipe(Layer.provide(FetchHttpClient.layer))
  )
)
