import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { parse } from "./openmetrics-parser.ts"

const org = "/v1/orgs/main"

const minute = 60_000
/** The beginning of an hour that is over. */
const hour = Math.floor(Date.now() / 3_600_000 - 2) * 3_600_000
const iso = (ms: number) => new Date(hour + ms).toISOString()

interface Series {
  readonly measurement: string
  readonly unit: string
  readonly values: ReadonlyArray<number | null>
}

/** A queue that holds messages, with samples of an hour that is over. */
const queue = Effect.gen(function* () {
  const { call, sql } = yield* Plane
  const found = yield* call("GET", `${org}/resources?kind=Queue`)
  const uid: string | undefined = found.body.items[0]?.uid
  if (uid !== undefined) return { uid, metrics: `${org}/resources/${uid}/metrics` }
  assert.strictEqual(
    (yield* call("POST", `${org}/projects`, { body: { name: "Shop", slug: "shop" } })).status,
    201
  )
  const made = yield* call("POST", `${org}/projects/shop/queues`, { body: { name: "jobs" } })
  assert.strictEqual(made.status, 201, made.text)
  yield* eventually(
    "the queue takes messages",
    call("POST", `${org}/projects/shop/queues/${made.body.id}/messages`, {
      body: { messages: [{ body: 1 }, { body: 2 }] }
    }),
    ({ status }) => status === 202
  )
  yield* sql(`insert into metric_sample (org_id, uid, source, at, values)
    select org_id, uid, 'store', '${iso(0)}'::timestamptz + make_interval(secs => n * 15),
      jsonb_build_object('queue.backlog', n) from resource, generate_series(0, 79) n
    where uid = '${made.body.id}' and (n < 20 or n >= 24)`)
  return { uid: String(made.body.id), metrics: `${org}/resources/${made.body.id}/metrics` }
})

layer(signedIn(), { excludeTestServices: true })("metrics", (it) => {
  it.effect("say what a resource has now, with units and age", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const { uid, metrics } = yield* queue
      const shown = yield* eventually(
        "the messages are measured",
        call("GET", metrics),
        ({ body }) => body.measurements?.[0]?.value === 2
      )
      assert.deepInclude(shown.body, { resource: uid, history: true })
      assert.deepInclude(shown.body.measurements[0], { measurement: "queue.backlog", unit: "count" })
      assert.isBelow(shown.body.measurements[0].ageSeconds, 90)
      const stranger = yield* tenant()
      for (const path of [metrics, `${metrics}/query`, `${org}/metrics`]) {
        const method = path.endsWith("query") ? "POST" : "GET"
        const refused = yield* call(method, path, {
          token: stranger.owner,
          body: method === "POST" ? {} : undefined
        })
        assert.include([403, 404], refused.status, path)
      }
    })
  )

  it.effect("are asked for over a time: null where there was no sample", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { metrics } = yield* queue
      const query = (body: object) => call("POST", `${metrics}/query`, { body })
      const window = { from: iso(0), to: iso(25 * minute), measurements: ["queue.backlog"] }
      const answer = yield* query({ ...window, stepSeconds: 60 })
      assert.strictEqual(answer.status, 200, answer.text)
      assert.deepInclude(answer.body, { from: iso(0), stepSeconds: 60, aggregation: "avg" })
      const [series]: ReadonlyArray<Series> = answer.body.series
      assert.lengthOf(series?.values ?? [], 25)
      assert.deepStrictEqual(series?.values.slice(0, 7), [1.5, 5.5, 9.5, 13.5, 17.5, null, 25.5])
      assert.isNull(series?.values.at(-1))
      const of = (aggregation: string) =>
        Effect.map(query({ ...window, stepSeconds: 300, aggregation }), ({ body }) => body.series[0].values)
      assert.deepStrictEqual(yield* of("min"), [0, 24, 40, 60, null])
      assert.deepStrictEqual(yield* of("max"), [19, 39, 59, 79, null])
      assert.deepStrictEqual(yield* of("last"), [19, 39, 59, 79, null])
      const usual = yield* query({})
      assert.deepStrictEqual(
        usual.body.series.map(({ measurement }: Series) => measurement),
        ["queue.backlog", "queue.backlog_messages", "queue.oldest_message_age_seconds"]
      )
      // A question for too many points is answered in longer steps.
      const year = yield* query({ from: "2026-01-01T00:00:00Z", to: "2026-11-01T00:00:00Z", stepSeconds: 1 })
      assert.isAtMost(year.body.series[0].values.length, 2_000)
    })
  )

  it.effect("add up over the time that has samples", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      yield* queue
      const found = yield* call("GET", `${org}/resources?kind=Environment`)
      const uid: string = found.body.items[0]?.uid
      // A whole minute of samples, and half of one.
      yield* sql(`insert into metric_sample (org_id, uid, source, at, values)
        select org_id, uid, 'store', '${iso(0)}'::timestamptz + make_interval(secs => n * 15), '{"http.requests": 60}'
        from resource, generate_series(0, 5) n where uid = '${uid}'`)
      const answer = yield* call("POST", `${org}/resources/${uid}/metrics/query`, {
        body: {
          ...{ from: iso(0), to: iso(3 * minute), stepSeconds: 60 },
          ...{ measurements: ["http.requests"], aggregation: "sum" }
        }
      })
      assert.deepStrictEqual(answer.body.series?.[0]?.values, [60, 30, null], answer.text)
    })
  )

  it.effect("refuse what cannot be answered, with the field", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { metrics } = yield* queue
      for (const [body, pointer] of [
        [{ measurements: ["cpu.percent"] }, "/measurements/0"],
        [{ measurements: ["no.such"] }, "/measurements/0"],
        [{ measurements: [] }, "/measurements"],
        [{ measurements: ["queue.backlog"], aggregation: "sum" }, "/measurements/0"],
        [{ aggregation: "p99" }, "/aggregation"],
        [{ from: iso(1), to: iso(1) }, "/from"],
        [{ from: "2024-01-01T00:00:00Z" }, "/from"],
        [{ stepSeconds: 0 }, "/stepSeconds"],
        [{ steps: 1 }, "/steps"]
      ] as const) {
        const refused = yield* call("POST", `${metrics}/query`, { body })
        assert.deepStrictEqual(
          [refused.status, refused.body.errors?.[0]?.pointer],
          [422, pointer],
          JSON.stringify(body)
        )
      }
    })
  )

  it.effect("are exported as OpenMetrics to a key of a member", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* queue
      const exported = yield* eventually(
        "the queue is in the export",
        call("GET", `${org}/metrics`),
        ({ text }) => text.includes("svc_queue_backlog{")
      )
      assert.strictEqual(
        exported.headers.get("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
      )
      assert.deepInclude(parse(exported.text).samples, {
        name: "svc_queue_backlog",
        labels: { project: "shop", environment: "production", kind: "Queue", name: "jobs" },
        value: 2
      })
    })
  )

  it.effect("are drawn by svc metrics", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { svc } = yield* Operator
      const { uid, metrics } = yield* queue
      yield* eventually("it is measured", call("GET", metrics), ({ body }) => body.measurements?.length > 0)
      const { body: resource } = yield* call("GET", `${org}/resources/${uid}`)
      const listed = yield* svc(["metrics", resource.address, "--last", "6h"])
      assert.strictEqual(listed.code, 0, listed.stderr)
      assert.match(listed.stdout, /^MEASUREMENT +NOW +LEAST +GREATEST +6H/)
      assert.match(listed.stdout, /queue\.backlog +2 .*[▁▂▃▄▅▆▇█]/)
      const drawn = yield* svc([
        "metrics",
        uid,
        "-m",
        "queue.backlog",
        "--last",
        "6h",
        "--aggregation",
        "max"
      ])
      assert.match(drawn.stdout, /queue\.backlog {2}Messages that wait[\s\S]*79 ┤[\s\S]*█/)
      const parsed = JSON.parse((yield* svc(["metrics", uid, "--json"])).stdout)
      assert.strictEqual(parsed.now.resource, uid)
      assert.strictEqual((yield* svc(["metrics", uid, "-m", "no.such"])).code, 2)
    })
  )
})
