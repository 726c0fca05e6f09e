/** Control planes as programs of their own, killed without warning while they deliver. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { campaign } from "#test/campaigns/campaign.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { reply, startApp } from "./app.ts"

campaign(
  it.live,
  "queue-kills",
  "a control plane that is killed while it delivers loses no message, and another one goes on",
  { rounds: 0, roundMs: 900_000 },
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesOnSharedServer
      const app = yield* startApp
      yield* Effect.promise(async () => {
        const first = await makePlane(base, store.url)
        planes.push(first)
        await first.start()
        const second = await makePlane(base, store.url)
        planes.push(second)
        await second.start()
        const projects = "/v1/orgs/main/projects"
        await second.call("POST", projects, { name: "Shop", slug: "shop" })
        await second.call("PATCH", `${projects}/shop/environments/production`, { origin: app.origin })
        const consumer = { path: "/", maxBatchSize: 5, maxConcurrency: 8, retryDelaySeconds: 0 }
        const queue = await second.call("POST", `${projects}/shop/queues`, { name: "jobs", consumer })
        assert.strictEqual(queue.status, 201, JSON.stringify(queue.body))
        const one = `${projects}/shop/queues/${queue.body.id}`

        // Some are answered, some are on their way and some wait when the process dies, however late that is.
        let came = 0
        app.answer = (_, response) => {
          if (came++ < 10) reply(response, 204)
          else if (came < 30) setTimeout(() => reply(response, 204), 400)
        }
        const published = new Set<string>()
        const publish = async (from: number) => {
          const bodies = Array.from({ length: 100 }, (_, i) => ({ body: from + i }))
          const { status, body } = await second.call("POST", `${one}/messages`, { messages: bodies })
          assert.strictEqual(status, 202)
          for (const { id } of body.messages as ReadonlyArray<{ id: string }>) published.add(id)
        }
        await Promise.all([publish(0), publish(100), publish(200)])
        await until("it delivers", () => came > 14)
        await first.kill("SIGKILL")
        await second.kill("SIGKILL")
        await sleep(500)
        assert.isBelow(
          new Set(app.batches.flatMap(({ messages }) => messages.map(({ id }) => id))).size,
          300,
          "all was delivered before anything died"
        )

        app.answer = (_, response) => reply(response, 204)
        const third = await makePlane(base, store.url)
        planes.push(third)
        await third.start()
        const sql = postgres(store.url, { max: 1, onnotice: () => {} })
        try {
          // The leases of the dead end.
          await sql`update queue_slot set lease_until = now() where lease_token is not null`
          await sql`update queue_message set due_at = now() where lease_token is not null`
          await sql`select pg_notify('svc_queue', ${queue.body.id})`
        } finally {
          await sql.end()
        }
        await until(
          "all is delivered",
          async () => (await third.call("GET", `${one}/stats`)).body.backlog === 0
        )
        const arrived = new Set(app.batches.flatMap(({ messages }) => messages.map(({ id }) => id)))
        assert.deepStrictEqual(
          [...published].filter((id) => !arrived.has(id)),
          []
        )
        const { body: stats } = await third.call("GET", `${one}/stats`)
        assert.strictEqual(stats.failed, 0)
        // Only what was under way came twice: eight batches of five at most.
        assert.isAtMost(app.bodies().length, 300 + 40)
      })
    })
)
