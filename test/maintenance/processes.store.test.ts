/** Runs and actions over several processes, which come and go. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { ago, database, dayMs, look, makeProject, place, setUp } from "./world.ts"

const allowing = (...allowedOperationIds: ReadonlyArray<string>) => ({
  autoRemediation: { enabled: true, maximumRisk: "write", allowedOperationIds, maxActionsPerRun: 100 }
})

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })(
  "maintenance over processes",
  (it) => {
    it.effect("calls each operation once, whichever process gets to it", () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        yield* anotherApi()
        const shop = yield* makeProject("shared")
        const stalled = {
          ...({ type: "Stalled", status: "true", reason: "NoProgress" } as const),
          ...{ message: "Several tries in a row changed nothing", since: ago(dayMs) }
        }
        const names = Array.from({ length: 20 }, (_, index) => `queue-${index}`)
        for (const name of names) yield* place(shop, { kind: "Queue", name, conditions: [stalled] })
        yield* setUp(shop)
        yield* call("PUT", `${shop.path}/maintenance`, { body: allowing("resources.retry") })
        const run = yield* look(shop)
        assert.lengthOf(run.actions, names.length)
        const calls = yield* sql(`select resource, count(*)::int as calls from audit_log
        where operation = 'resources.retry' group by 1`)
        assert.deepStrictEqual(
          calls.map((row) => row["calls"]),
          names.map(() => 1)
        )
      }).pipe(Effect.scoped)
    )

    it.effect("begins one run at a time, however many ask", () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const shop = yield* makeProject("asked")
        yield* setUp(shop)
        const [row] = yield* sql(
          `select uid from resource where kind = 'Maintenance' and project_id = '${shop.projectId}'`
        )
        // One that goes on for as long as the test wants.
        const held =
          yield* sql(`insert into maintenance_run (org_id, id, maintenance_uid, trigger, status, due_at)
        values ('${shop.orgId}', gen_random_uuid(), '${row?.["uid"]}', 'manual', 'running', now() + interval '1 hour')
        returning id`)
        const asked = yield* Effect.all(
          Array.from({ length: 8 }, () => call("POST", `${shop.path}/maintenance/runs`)),
          { concurrency: 8 }
        )
        assert.deepStrictEqual(
          asked.map(({ status, body }) => [status, body.id]),
          asked.map(() => [202, held[0]?.["id"]])
        )
        yield* sql(`update maintenance_schedule set next_at = now() where uid = '${row?.["uid"]}'`)
        yield* sql(`select pg_notify('svc_maintenance', 'plan')`)
        const next = sql(
          `select next_at > now() as later from maintenance_schedule where uid = '${row?.["uid"]}'`
        )
        yield* eventually("the next run is planned", next, ([one]) => one?.["later"] === true)
        const open = yield* sql(
          `select count(*)::int as n from maintenance_run where maintenance_uid = '${row?.["uid"]}' and finished_at is null`
        )
        assert.deepStrictEqual(open, [{ n: 1 }])
      })
    )
  }
)

layer(testPlane({ roles: new Set(["engine"]) }), { excludeTestServices: true, timeout: "2 minutes" })(
  "a decision of maintenance",
  (it) => {
    it.effect("outlives the processes that could call it, and is carried out by the next one", () =>
      Effect.gen(function* () {
        const { apiKey, sql } = yield* Plane
        const api = Effect.map(anotherApi(), (url) =>
          Effect.fnUntraced(function* (method: string, path: string, body?: object) {
            return yield* Effect.promise(async () => {
              const response = await fetch(`${url}${path}`, {
                method,
                headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
                ...(body === undefined ? {} : { body: JSON.stringify(body) })
              })
              // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
              const answered: any = await response.json()
              return { status: response.status, body: answered }
            })
          })
        )
        const base = "/v1/orgs/main/projects/left/maintenance"
        const projectId = yield* Effect.scoped(
          Effect.gen(function* () {
            const call = yield* api
            const made = yield* call("POST", "/v1/orgs/main/projects", { name: "Left", slug: "left" })
            yield* call("PUT", base, { categories: ["security"] })
            yield* eventually(
              "the first run is over",
              call("GET", `${base}/runs`),
              ({ body }) => body.items.at(-1)?.finishedAt != null
            )
            return String(made.body.id)
          })
        )
        const [project] = yield* sql(`select org_id as id from resource where uid = '${projectId}'`)
        const orgId = String(project?.["id"])
        const uid = yield* place({ orgId, projectId, path: "" }, database({}))
        const settings = JSON.stringify(allowing("resources.protect"))
        const [row] = yield* sql(`update resource set spec = spec || '${settings}'
          where kind = 'Maintenance' and project_id = '${projectId}' returning uid`)
        yield* sql(`insert into maintenance_run (org_id, id, maintenance_uid, trigger)
          values ('${orgId}', gen_random_uuid(), '${row?.["uid"]}', 'manual')`)
        yield* sql(`select pg_notify('svc_maintenance', 'begin')`)
        const decided = sql(
          `select id, status from maintenance_action where maintenance_uid = '${row?.["uid"]}'`
        )
        const [action] = yield* eventually("it is decided", decided, ({ length }) => length > 0)
        assert.strictEqual(action?.["status"], "planned")
        const isProtected = sql(`select protected from resource where uid = '${uid}'`)
        assert.deepStrictEqual(yield* isProtected, [{ protected: false }])

        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* api
            yield* eventually("it is carried out", decided, ([one]) => one?.["status"] === "succeeded")
          })
        )
        assert.deepStrictEqual(yield* isProtected, [{ protected: true }])
        const calls = yield* sql(
          `select request_id as id from audit_log where operation = 'resources.protect'`
        )
        assert.deepStrictEqual(calls, [{ id: action?.["id"] }])
      })
    )
  }
)
