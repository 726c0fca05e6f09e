import { randomUUID } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { batchOf, event, measuredProject, origin, query, send } from "./world.ts"

layer(testPlane(), { excludeTestServices: true })("measurements that browsers send", (it) => {
  it.effect("are taken as text and as JSON, and a batch that comes again counts once", () =>
    Effect.gen(function* () {
      const site = yield* measuredProject()
      const batch = batchOf([event(), event({ metric: "CLS", value: 0.05 })])
      const first = yield* send(site, batch)
      assert.strictEqual(first.status, 202)
      assert.deepStrictEqual(first.body, { accepted: 2, duplicate: false, sampledOut: false })
      assert.strictEqual(first.headers.get("access-control-allow-origin"), origin)
      assert.strictEqual(first.headers.get("vary"), "origin")
      const again = yield* Effect.all(
        Array.from({ length: 20 }, () => send(site, batch, { "content-type": "application/json" })),
        { concurrency: 20 }
      )
      for (const { body } of again)
        assert.deepStrictEqual(body, { accepted: 0, duplicate: true, sampledOut: false })
      const copies = batchOf([event()])
      const atOnce = yield* Effect.all(
        Array.from({ length: 20 }, () => send(site, copies)),
        { concurrency: 20 }
      )
      assert.strictEqual(atOnce.filter(({ body }) => body.accepted === 1).length, 1)
      assert.strictEqual(atOnce.filter(({ body }) => body.duplicate).length, 19)
      assert.strictEqual((yield* query(site)).body.summary.samples, 3)
    })
  )

  it.effect("come from pages of the project's own addresses and of named origins alone", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const site = yield* measuredProject()
      const batch = batchOf([event()])
      for (const other of ["https://evil.example.com", "http://shop.example.com", "null", `${origin}:444`]) {
        const refused = yield* send(site, batch, { origin: other })
        assert.strictEqual(refused.status, 403, other)
        assert.strictEqual(refused.body.code, "origin_not_allowed")
        assert.isNull(refused.headers.get("access-control-allow-origin"))
      }
      const nobody = yield* call("POST", site.collect, { token: null, body: batch })
      assert.strictEqual(nobody.status, 403)

      // Its managed address, a verified domain, and where its app answers.
      yield* sql(`insert into edge_host (hostname, org_id, environment_uid, domain_uid)
        select 'www.${site.project}.example', s.org_id, s.environment_uid, p.uid
        from edge_site s join resource e on e.org_id = s.org_id and e.uid = s.environment_uid
        join resource p on p.uid = e.project_id where p.name = '${site.project}' and e.name = 'production'`)
      const environments = `/v1/orgs/${site.org}/projects/${site.project}/environments`
      yield* call("PATCH", `${environments}/preview`, {
        token: site.token,
        body: { origin: "https://preview.example.net" }
      })
      const list = yield* eventually(
        "its environments have addresses",
        call("GET", environments, { token: site.token }),
        ({ body }) => body.every((one: { address: string | null }) => one.address !== null)
      )
      const managed: ReadonlyArray<string> = list.body.map((one: { address: string }) => one.address)
      const allowed = [...managed, "https://preview.example.net", `https://www.${site.project}.example:8443`]
      for (const address of allowed) {
        const sent = Effect.map(
          send(site, batchOf([event()]), { origin: new URL(address).origin }),
          (answer) => (answer.status === 202 ? answer : undefined)
        )
        const taken = yield* eventually(`${address} may send`, sent)
        assert.strictEqual(taken.body.accepted, 1, address)
      }
    })
  )

  it.effect("may be asked for before JSON is sent", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const site = yield* measuredProject()
      const ask = (from: string) => call("OPTIONS", site.collect, { token: null, headers: { origin: from } })
      const allowed = yield* ask(origin)
      assert.strictEqual(allowed.status, 204)
      assert.strictEqual(allowed.headers.get("access-control-allow-origin"), origin)
      assert.strictEqual(allowed.headers.get("access-control-allow-headers"), "content-type")
      const refused = yield* ask("https://evil.example.com")
      assert.strictEqual(refused.status, 204)
      assert.isNull(refused.headers.get("access-control-allow-origin"))
    })
  )

  it.effect("are refused where the project takes none, or is none", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const off = yield* measuredProject({ enabled: false })
      const refused = yield* send(off, batchOf([event()]))
      assert.strictEqual(refused.status, 403)
      assert.strictEqual(refused.body.code, "speed_insights_disabled")
      const nowhere = yield* send({ collect: "/v1/speed-insights/collect/nobody-0123" }, batchOf([event()]))
      assert.strictEqual(nowhere.status, 404)
      // What has not the form of a reference is not looked up, and of others not any number.
      const statusOf = (ref: string) =>
        Effect.map(
          send({ collect: `/v1/speed-insights/collect/${ref}` }, batchOf([event()])),
          ({ status }) => status
        )
      for (const ref of ["A", "1a", "a_b", `a${"b".repeat(62)}`])
        assert.strictEqual(yield* statusOf(ref), 404, ref)
      // Another method.
      const site = yield* measuredProject()
      assert.strictEqual((yield* call("GET", site.collect, { token: null })).status, 405)
    })
  )

  it.effect("may be as small as a number can be, and count as 0", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const site = yield* measuredProject()
      const batch = batchOf([1e-50, 5e-324, 1e-5, 0].map((value) => event({ metric: "CLS", value })))
      assert.strictEqual((yield* send(site, batch)).status, 202)
      const [row] = yield* sql(
        `select value::float8[] as value from speed_batch where batch_id = '${batch.batchId}'`
      )
      assert.deepStrictEqual(row?.["value"], [0, 0, Math.fround(1e-5), 0])
    })
  )

  it.effect("are refused with every fault named", () =>
    Effect.gen(function* () {
      const site = yield* measuredProject()
      const one = event()
      const faults: ReadonlyArray<readonly [batch: unknown, status: number, pointer?: string]> = [
        ["{", 400],
        ["NaN", 400],
        ['{"schemaVersion":1,"schemaVersion":1}', 422],
        [JSON.stringify(batchOf([one])).replace('"value":1200', '"value":NaN'), 400],
        [JSON.stringify(batchOf([one])).replace('"value":1200', '"value":1e999'), 422, "/events/0/value"],
        [batchOf([event({ value: -1 })]), 422, "/events/0/value"],
        [batchOf([event({ value: 3_600_001 })]), 422, "/events/0/value"],
        [batchOf([event({ metric: "CLS", value: 1_001 })]), 422, "/events/0/value"],
        [batchOf([event({ value: "1" })]), 422, "/events/0/value"],
        [batchOf([event({ metric: "FID" })]), 422, "/events/0/metric"],
        [batchOf([event({ route: "/a?b=c" })]), 422, "/events/0/route"],
        [batchOf([event({ route: "/a#b" })]), 422, "/events/0/route"],
        [batchOf([event({ route: "a" })]), 422, "/events/0/route"],
        [batchOf([event({ route: "/a\u0000" })]), 422, "/events/0/route"],
        [batchOf([event({ route: `/${"a".repeat(256)}` })]), 422, "/events/0/route"],
        [batchOf([event({ device: "tablet" })]), 422, "/events/0/device"],
        [batchOf([event({ eventId: "a b" })]), 422, "/events/0/eventId"],
        [batchOf([event({ address: "192.0.2.1" })]), 422, "/events/0/address"],
        [batchOf([event({ timestamp: "yesterday" })]), 422, "/events/0/timestamp"],
        [batchOf([event({ timestamp: new Date(Date.now() - 25 * 3_600_000) })]), 422, "/events/0/timestamp"],
        [batchOf([event({ timestamp: new Date(Date.now() + 600_000) })]), 422, "/events/0/timestamp"],
        [batchOf([one, one]), 422, "/events/1/eventId"],
        [batchOf([]), 422, "/events"],
        [batchOf([one], { schemaVersion: 2 }), 422, "/schemaVersion"],
        [batchOf([one], { batchId: "" }), 422, "/batchId"],
        [batchOf([one], { environment: "nowhere" }), 422, "/environment"],
        [batchOf([one], { userAgent: "x" }), 422, "/userAgent"]
      ]
      for (const [batch, status, pointer] of faults) {
        const refused = yield* send(site, batch)
        const what = JSON.stringify(batch).slice(0, 300)
        assert.strictEqual(refused.status, status, `${what} ${refused.text}`)
        if (pointer !== undefined)
          assert.include(
            refused.body.errors.map((fault: { pointer: string }) => fault.pointer),
            pointer,
            what
          )
        // The page may read what is wrong.
        assert.strictEqual(refused.headers.get("access-control-allow-origin"), origin)
      }
      const form = { "content-type": "application/x-www-form-urlencoded" }
      assert.strictEqual((yield* send(site, batchOf([one]), form)).status, 415)
      assert.strictEqual((yield* query(site)).body.summary.samples, 0)
    })
  )

  it.effect("may be 32,768 bytes long and not more", () =>
    Effect.gen(function* () {
      const site = yield* measuredProject()
      const text = JSON.stringify(batchOf([event()]))
      const longest = text + " ".repeat(32_768 - text.length)
      assert.strictEqual((yield* send(site, longest)).status, 202)
      const longer = yield* send(site, `${longest} `)
      assert.strictEqual(longer.status, 413)
      assert.strictEqual(longer.body.code, "payload_too_large")
    })
  )

  it.effect("are kept by the sample rate, and a batch always or never", () =>
    Effect.gen(function* () {
      const site = yield* measuredProject({ sampleRate: 0.25 })
      const batches = Array.from({ length: 200 }, () => batchOf([event()]))
      const sendAll = Effect.forEach(batches, (batch) => send(site, batch), { concurrency: 20 })
      const first = yield* sendAll
      const kept = first.filter(({ body }) => !body.sampledOut).length
      // Six standard deviations either way.
      assert.isAbove(kept, 13)
      assert.isBelow(kept, 87)
      const second = yield* sendAll
      assert.deepStrictEqual(
        second.map(({ body }) => body.sampledOut),
        first.map(({ body }) => body.sampledOut)
      )
      assert.isTrue(second.every(({ body }) => body.accepted === 0 && body.duplicate !== body.sampledOut))
      const none = yield* measuredProject({ sampleRate: 0 })
      assert.isTrue((yield* send(none, batchOf([event()]))).body.sampledOut)
    })
  )

  it.effect("leave nothing of who sent them", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const site = yield* measuredProject()
      const canary = randomUUID()
      const batch = batchOf([event()])
      yield* send(site, batch, {
        "user-agent": canary,
        referer: `https://x/${canary}`,
        cookie: `a=${canary}`
      })
      const tables = yield* sql(
        "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
      )
      for (const { relname } of tables) {
        const rows = yield* sql(`select t::text as row from "${String(relname)}" t`)
        for (const { row } of rows) assert.notInclude(String(row), canary, String(relname))
      }
    })
  )

  it.effect("configuration: what is left out stays, and what is wrong is refused", () =>
    Effect.gen(function* () {
      const { call, url, tenant } = yield* Plane
      const site = yield* measuredProject({ sampleRate: 0.5 })
      const put = (body: object, token = site.token) => call("PUT", site.base, { token, body })
      const expected = {
        enabled: false,
        projectRef: site.projectRef,
        endpoint: `${url}${site.collect}`,
        sampleRate: 0.5,
        allowedOrigins: [origin],
        retentionDays: 30
      }
      assert.match(site.projectRef, /^[a-z][a-z0-9-]{1,61}$/)
      assert.deepStrictEqual((yield* put({ enabled: false })).body, expected)
      assert.deepStrictEqual((yield* call("GET", site.base, { token: site.token })).body, expected)
      const emptied = yield* put({ enabled: true, allowedOrigins: [] })
      assert.deepStrictEqual(emptied.body, { ...expected, enabled: true, allowedOrigins: [] })
      for (const wrong of [
        {},
        { enabled: 1 },
        { enabled: true, sampleRate: 1.1 },
        { enabled: true, sampleRate: -0.1 },
        { enabled: true, allowedOrigins: ["http://shop.example.com"] },
        { enabled: true, allowedOrigins: ["https://shop.example.com/"] },
        { enabled: true, allowedOrigins: ["https://a:b@shop.example.com"] },
        { enabled: true, allowedOrigins: ["*"] },
        { enabled: true, allowedOrigins: [origin, origin] },
        { enabled: true, retentionDays: 60 }
      ])
        assert.strictEqual((yield* put(wrong)).status, 422, JSON.stringify(wrong))
      const other = yield* tenant()
      assert.strictEqual((yield* call("GET", site.base, { token: other.adminKey })).status, 404)
    })
  )
})

const daily = testPlane({}, { SVC_SPEED_EVENTS_PER_DAY: "10", SVC_SPEED_BYTES_PER_DAY: "8000" })
layer(daily, { excludeTestServices: true })("a project's budget of the day", (it) => {
  const events = (count: number) => batchOf(Array.from({ length: count }, () => event()))
  it.effect("is of measurements that are stored, and keeps no other project from sending", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const [site, quiet] = [yield* measuredProject(), yield* measuredProject()]
      const first = events(6)
      assert.strictEqual((yield* send(site, first)).status, 202)
      // A copy is not stored.
      for (const _ of [1, 2, 3]) assert.strictEqual((yield* send(site, first)).body.duplicate, true)
      assert.strictEqual((yield* send(site, events(4))).body.accepted, 4)
      const refused = yield* send(site, events(1))
      assert.strictEqual(refused.status, 429)
      assert.strictEqual(refused.body.code, "rate_limited")
      const untilMidnight = Math.ceil((new Date().setUTCHours(24, 0, 0, 0) - Date.now()) / 1_000)
      assert.closeTo(Number(refused.headers.get("retry-after")), untilMidnight, 60)
      assert.match(refused.headers.get("ratelimit-policy") ?? "", /^"speed-day";q=10;w=86400$/)
      assert.strictEqual(refused.headers.get("access-control-allow-origin"), origin)
      const [row] = yield* sql(`select i.events::int as events from speed_intake i
        join speed_project p on p.project_uid = i.project_uid where p.project_ref = '${site.projectRef}'`)
      assert.strictEqual(row?.["events"], 10)
      assert.strictEqual((yield* send(quiet, events(1))).status, 202)
    })
  )

  it.effect("is of bytes as well, of all processes together", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const site = yield* measuredProject()
      assert.strictEqual((yield* send(site, events(1))).status, 202)
      // What another process has stored meanwhile.
      yield* sql(`update speed_intake set bytes = 7990 where project_uid =
        (select project_uid from speed_project where project_ref = '${site.projectRef}')`)
      assert.strictEqual((yield* send(site, events(1))).status, 202)
      const refused = yield* send(site, events(1))
      assert.strictEqual(refused.status, 429)
      assert.match(refused.headers.get("ratelimit-policy") ?? "", /q=8000;/)
    })
  )
})

const limited = testPlane({}, { SVC_SPEED_BATCHES_PER_MINUTE: "10" })
layer(limited, { excludeTestServices: true })("a project's limit", (it) => {
  it.effect("keeps no other project from sending", () =>
    Effect.gen(function* () {
      const [noisy, quiet] = [yield* measuredProject(), yield* measuredProject()]
      const answers = yield* Effect.forEach(Array.from({ length: 15 }), () => send(noisy, batchOf([event()])))
      const refused = answers.filter(({ status }) => status === 429)
      assert.isAtLeast(refused.length, 3)
      assert.isNotNull(refused[0]?.headers.get("retry-after"))
      assert.strictEqual((yield* send(quiet, batchOf([event()]))).status, 202)
    })
  )
})
