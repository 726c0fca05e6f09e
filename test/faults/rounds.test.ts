/** The program is killed in the middle of an evaluation of alerts, and of a run of maintenance: the next one does it, once. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { campaign } from "#test/campaigns/campaign.ts"
import { until } from "#test/setup/wait.ts"
import { makePlane, planesOnSharedServer } from "./planes.ts"

const project = "/v1/orgs/main/projects/shop"

/** A connection to the store that ends with the test. */
const connection = (url: string, max: number) =>
  Effect.acquireRelease(
    Effect.sync(() => postgres(url, { max, onnotice: () => {} })),
    (client) => Effect.promise(() => client.end({ timeout: 1 }))
  )

campaign(
  it.live,
  "round-kills",
  "a program that is killed in the middle of a round leaves nothing half done, and the next one does it once",
  { roundMs: 600_000, rounds: 0 },
  () =>
    Effect.gen(function* () {
      const { base, planes, store } = yield* planesOnSharedServer
      const sql = yield* connection(store.url, 3)
      yield* Effect.promise(async () => {
        const plane = await makePlane(base, store.url, { SVC_METRICS_SECONDS: "5" })
        planes.push(plane)
        const call = async (method: string, path: string, body?: object) => {
          const answer = await plane.call(method, path, body)
          assert.isBelow(answer.status, 300, `${method} ${path} ${JSON.stringify(answer.body)}`)
          return answer.body
        }
        /** Whoever is to write a table waits, is killed there, and the next program takes its place. */
        const killedAt = async (table: string, begin: () => Promise<unknown>) => {
          await sql.begin(async (holder) => {
            await holder`lock table ${holder(table)} in share mode`
            await begin()
            await until(`somebody is to write ${table}`, async () => {
              const waiting = await sql`
                select 1 from pg_locks l join pg_class c on c.oid = l.relation
                where not l.granted and c.relname = ${table}
                  and l.database = (select oid from pg_database where datname = current_database())`
              return waiting.length > 0
            })
            await plane.kill("SIGKILL")
          })
          // A statement that nobody waits for any more may still come to its end.
          await until("nobody is at it", async () => {
            const left = await sql`
              select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                and state = 'active' and query ilike ${`%insert into ${table}%`}`
            return left.length === 0
          })
          await plane.start()
        }

        await plane.start()
        await call("POST", "/v1/orgs/main/projects", { name: "Shop", slug: "shop" })
        const queue = await call("POST", `${project}/queues`, { name: "jobs" })
        const alert = await call("POST", `${project}/alerts`, {
          ...{ name: "backlog", severity: "critical", scope: {} },
          condition: { signal: "queue.backlog", threshold: 1, durationSeconds: 0 }
        })
        const stateOf = async () => (await call("GET", `${project}/alerts/${alert.id}`)).state
        await until("it is measured", async () => (await stateOf()) === "ok")
        await sql`delete from alert_history`
        await killedAt("alert_history", () =>
          call("POST", `${project}/queues/${queue.id}/messages`, { messages: [{ body: 1 }] })
        )
        await until("it fires", async () => (await stateOf()) === "firing")
        const changes =
          await sql`select change from alert_history where change in ('firing', 'notified', 'resolved')`
        assert.sameMembers(
          changes.map(({ change }) => change),
          ["firing"]
        )

        // Of a database that nothing guards, which no engine works on.
        await sql`
          insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, status, phase, managed_by)
          select org_id, gen_random_uuid(), 'Database', uid, 'production', 'main', gen_random_uuid(),
            '{"region": "elsewhere"}', '{"server": "PostgreSQL 18.4"}', 'ready', 'api'
          from resource where kind = 'Project'`
        await killedAt("maintenance_finding", () =>
          call("PUT", `${project}/maintenance`, { categories: ["security", "backups"] })
        )
        // Its lease ends now instead of some time later.
        await sql`update maintenance_run set due_at = now() where finished_at is null`
        const run = await until("the run is over", async () => {
          const { items } = await call("GET", `${project}/maintenance/runs`)
          return items.length > 0 && items.at(-1).finishedAt !== null ? items.at(-1) : undefined
        })
        assert.strictEqual(run.status, "succeeded", JSON.stringify(run))
        const found = await sql`select key from maintenance_finding`
        assert.isAbove(found.length, 0)
        assert.strictEqual(new Set(found.map(({ key }) => key)).size, found.length)
      })
    })
)
