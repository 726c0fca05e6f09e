import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Webhook } from "standardwebhooks"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { type App, reply, signatureOf, startApp } from "./app.ts"

interface Stats {
  readonly backlog: number
  readonly inFlight: number
  readonly failed: number
  readonly inDeadLetterQueue: number
}

const until = <A>(look: Effect.Effect<A>, is: (seen: A) => boolean) =>
  eventually("the queue has come so far", look, is)

/** A project of its own with an app that answers, and what tests do with its queues. */
const shop = Effect.fnUntraced(function* (slug: string) {
  const { call } = yield* Plane
  const app: App = yield* startApp
  const projects = "/v1/orgs/main/projects"
  yield* call("POST", projects, { body: { name: slug, slug } })
  const origin = (value: string | null) =>
    call("PATCH", `${projects}/${slug}/environments/production`, { body: { origin: value } })
  assert.strictEqual((yield* origin(app.origin)).status, 200)
  const base = `${projects}/${slug}/queues`
  const queue = Effect.fnUntraced(function* (name: string, settings: object) {
    const made = yield* call("POST", base, { body: { name, ...settings } })
    assert.strictEqual(made.status, 201, made.text)
    const one = `${base}/${made.body.id}`
    yield* until(call("GET", one), ({ body }) => body.status === "ready")
    return {
      id: String(made.body.id),
      change: (body: object) => call("PATCH", one, { body }),
      publish: (...bodies: ReadonlyArray<unknown>) =>
        Effect.map(
          call("POST", `${one}/messages`, { body: { messages: bodies.map((body) => ({ body })) } }),
          (answer) => {
            assert.strictEqual(answer.status, 202)
            return answer.body.messages.map(({ id }: { id: string }) => id) as ReadonlyArray<string>
          }
        ),
      send: (message: object) => call("POST", `${one}/messages`, { body: { messages: [message] } }),
      redrive: Effect.map(call("POST", `${one}/redrive`, { body: {} }), ({ body }) => body.redriven),
      stats: Effect.map(call("GET", `${one}/stats`), ({ body }) => body as Stats)
    }
  })
  return { app, queue, origin, environment: `${projects}/${slug}/environments/production` }
})
/** For what waits in this queue. */
const anHourPasses = Effect.fnUntraced(function* ({ id }: { readonly id: string }) {
  const { sql } = yield* Plane
  yield* sql(
    `update queue_message set due_at = due_at - interval '1 hour' where queue_uid = '${id}' and lease_token is null`
  )
  // Whoever delivers would see it at the next look, some seconds later.
  yield* sql(`select pg_notify('svc_queue', '${id}')`)
})
/** Published now, this has gone to its app: whoever delivers has looked at everything that waited before. */
const passer = Effect.fnUntraced(function* (slug: string) {
  const { queue } = yield* shop(slug)
  const other = yield* queue("other", { consumer: { path: "/" } })
  return Effect.andThen(other.publish("passing"), until(other.stats, empty))
})
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)
const empty = (stats: Stats) => stats.backlog === 0

layer(testPlane(), { excludeTestServices: true, timeout: "3 minutes" })("messages", (it) => {
  it.effect("reach the app in signed batches no larger than asked for, each once", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { app, queue, environment } = yield* shop("signed")
      const rotated = yield* call("POST", `${environment}/signing-secret/rotate`)
      const { signingSecret } = rotated.body
      const jobs = yield* queue("jobs", { consumer: { path: "/jobs?x=1", maxBatchSize: 7 } })
      const ids = yield* jobs.publish(...numbers(1, 40))
      yield* until(jobs.stats, empty)
      assert.sameMembers([...app.bodies()], numbers(1, 40))
      assert.sameMembers(
        app.batches.flatMap(({ messages }) => messages.map(({ id }) => id)),
        [...ids]
      )
      for (const { path, headers, raw, queueId, messages } of app.batches) {
        assert.strictEqual(path, "/jobs?x=1")
        assert.isAtMost(messages.length, 7)
        assert.strictEqual(queueId, jobs.id)
        const [, time = "", given = ""] =
          /^t=(\d+),v1=([0-9a-f]{64})/.exec(String(headers["svc-signature"])) ?? []
        assert.strictEqual(given, signatureOf(signingSecret, time, raw))
        assert.isDefined(
          new Webhook(signingSecret).verify(raw, {
            "webhook-id": String(headers["webhook-id"]),
            "webhook-timestamp": String(headers["webhook-timestamp"]),
            "webhook-signature": String(headers["webhook-signature"])
          })
        )
      }
    })
  )

  it.effect("that an answer does not acknowledge come again, and the others do not", () =>
    Effect.gen(function* () {
      const { app, queue } = yield* shop("partly")
      app.answer = ({ messages }, response) =>
        reply(response, 200, {
          messages: messages.flatMap(({ id, body, attempt }) =>
            body === "forgotten" && attempt === 1
              ? []
              : body === "again" && attempt === 1
                ? [{ id, outcome: "retry", delaySeconds: 0, reason: "not now" }]
                : body === "never"
                  ? [{ id, outcome: "reject", reason: "makes no sense" }]
                  : [{ id, outcome: "ack" }]
          )
        })
      const jobs = yield* queue("jobs", { consumer: { path: "/", retryDelaySeconds: 0 } })
      yield* jobs.publish("fine", "forgotten", "again", "never")
      const stats = yield* until(jobs.stats, empty)
      assert.strictEqual(stats.failed, 1)
      assert.sameMembers([...app.bodies()], ["fine", "forgotten", "again", "never", "forgotten", "again"])
      // Another chance, with an app that has learned.
      app.answer = (_, response) => reply(response, 204)
      assert.strictEqual(yield* jobs.redrive, 1)
      const after = yield* until(jobs.stats, (now) => empty(now) && now.failed === 0)
      assert.strictEqual(after.failed, 0)
      assert.strictEqual(app.bodies().filter((body) => body === "never").length, 2)
    })
  )

  it.effect("that fail too often go to the dead letter queue, and come back from there when asked", () =>
    Effect.gen(function* () {
      const { app, queue } = yield* shop("letters")
      app.answer = (_, response) => reply(response, 500)
      const dead = yield* queue("dead", {})
      const jobs = yield* queue("jobs", {
        deadLetterQueue: "dead",
        consumer: { path: "/", maxRetries: 2, retryDelaySeconds: 0, maxBatchSize: 2 }
      })
      yield* jobs.publish("a", "b", "c")
      const stats = yield* until(jobs.stats, empty)
      assert.deepStrictEqual([stats.failed, stats.inDeadLetterQueue], [0, 3])
      assert.strictEqual((yield* dead.stats).backlog, 3)
      for (const body of ["a", "b", "c"]) {
        assert.deepStrictEqual(
          app.batches
            .flatMap(({ messages }) => messages.filter((one) => one.body === body))
            .map(({ attempt }) => attempt),
          [1, 2, 3]
        )
      }
      app.answer = (_, response) => reply(response, 200)
      assert.strictEqual(yield* dead.redrive, 3)
      yield* until(jobs.stats, (now) => empty(now) && now.inDeadLetterQueue === 0)
      assert.strictEqual((yield* dead.stats).backlog, 0)
      assert.strictEqual(app.bodies().length, 12)
    })
  )

  it.effect("wait while the queue is paused, while no origin is named, and until their time has come", () =>
    Effect.gen(function* () {
      const { app, queue, origin } = yield* shop("waiting")
      const jobs = yield* queue("jobs", { paused: true, consumer: { path: "/" } })
      const aWhile = yield* passer("waiting-not")
      yield* jobs.publish("paused")
      yield* aWhile
      assert.deepStrictEqual(app.bodies(), [])
      yield* jobs.change({ paused: false })
      yield* until(jobs.stats, empty)
      assert.deepStrictEqual(app.bodies(), ["paused"])
      yield* origin(null)
      yield* jobs.publish("homeless")
      yield* aWhile
      assert.strictEqual((yield* jobs.stats).backlog, 1)
      yield* origin(app.origin)
      yield* until(jobs.stats, empty)
      yield* jobs.send({ body: "later", delaySeconds: 3_600 })
      yield* aWhile
      assert.deepStrictEqual(app.bodies(), ["paused", "homeless"])
      yield* anHourPasses(jobs)
      yield* until(jobs.stats, empty)
      assert.deepStrictEqual(app.bodies(), ["paused", "homeless", "later"])
      assert.strictEqual(app.batches.at(-2)?.messages[0]?.attempt, 1, "waiting is no try")
    })
  )

  it.effect("wait for company as long as the queue says, and a full batch does not wait", () =>
    Effect.gen(function* () {
      const { app, queue } = yield* shop("company")
      const jobs = yield* queue("jobs", {
        consumer: { path: "/", maxBatchSize: 3, maxBatchWaitSeconds: 3_600 }
      })
      yield* jobs.publish(1)
      yield* jobs.publish(2)
      yield* yield* passer("company-not")
      assert.deepStrictEqual(app.batches, [])
      yield* jobs.publish(3, 4)
      yield* until(
        Effect.sync(() => app.batches.length),
        (count) => count === 1
      )
      assert.deepStrictEqual(app.bodies(), [1, 2, 3])
      yield* anHourPasses(jobs)
      yield* until(jobs.stats, empty)
      assert.deepStrictEqual(app.bodies(), [1, 2, 3, 4])
    })
  )

  it.effect(
    "are never in more batches at once than the queue allows, and a slow queue holds up no other",
    () =>
      Effect.gen(function* () {
        const { app, queue } = yield* shop("narrow")
        let open = 0
        let most = 0
        let waiting: Array<() => void> | undefined = []
        app.answer = ({ path }, response) => {
          if (path === "/quick") return reply(response, 204)
          most = Math.max(most, ++open)
          const end = () => {
            open--
            reply(response, 204)
          }
          if (waiting === undefined) setTimeout(end, 20)
          else waiting.push(end)
        }
        const slow = yield* queue("slow", { consumer: { path: "/slow", maxBatchSize: 1, maxConcurrency: 3 } })
        const quick = yield* queue("quick", { consumer: { path: "/quick" } })
        yield* slow.publish(...numbers(1, 30))
        yield* until(
          Effect.sync(() => open),
          (now) => now === 3
        )
        yield* quick.publish("first")
        yield* until(quick.stats, empty)
        assert.strictEqual((yield* slow.stats).backlog, 30)
        const held = waiting
        waiting = undefined
        for (const end of held) end()
        yield* until(slow.stats, empty)
        assert.strictEqual(most, 3)
        assert.strictEqual(app.bodies().length, 31)
      })
  )

  it.effect("come again after a dead app, a broken answer and a redirect, and go nowhere else", () =>
    Effect.gen(function* () {
      const { app, queue } = yield* shop("broken")
      const elsewhere = yield* startApp
      let tries = 0
      app.answer = (_, response) => {
        tries++
        if (tries === 1) return void response.destroy()
        if (tries === 2) return void response.writeHead(200, { "content-type": "application/json" }).end("{")
        if (tries === 3) return void response.writeHead(307, { location: `${elsewhere.origin}/` }).end()
        reply(response, 204)
      }
      const jobs = yield* queue("jobs", { consumer: { path: "/", maxRetries: 5, retryDelaySeconds: 0 } })
      yield* jobs.publish("precious")
      yield* until(jobs.stats, empty)
      assert.strictEqual((yield* jobs.stats).failed, 0)
      assert.strictEqual(tries, 4)
      assert.deepStrictEqual(elsewhere.batches, [])
    })
  )

  it.effect("reach an app that fails a third of the time, every one of them", () =>
    Effect.gen(function* () {
      const { app, queue } = yield* shop("flaky")
      let tries = 0
      app.answer = (_, response) => {
        const turn = tries++ % 6
        if (turn === 1) return reply(response, 500)
        if (turn === 4) return void response.destroy()
        reply(response, 204)
      }
      const jobs = yield* queue("jobs", {
        consumer: { path: "/", maxBatchSize: 10, maxRetries: 100, retryDelaySeconds: 0 }
      })
      const ids: Array<string> = []
      for (let from = 0; from < 1000; from += 250)
        ids.push(...(yield* jobs.publish(...numbers(from, from + 249))))
      const stats = yield* until(jobs.stats, empty)
      assert.strictEqual(stats.failed, 0)
      const arrived = new Set(app.batches.flatMap(({ messages }) => messages.map(({ id }) => id)))
      assert.deepStrictEqual(
        ids.filter((id) => !arrived.has(id)),
        []
      )
      assert.isAbove(app.bodies().length, 1000)
    })
  )

  it.effect("in a manifest's queue are planned, exported and changed like any resource", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      yield* shop("declared")
      const manifest = (queues: ReadonlyArray<object>) => ({
        version: 1,
        organization: "main",
        projects: [{ name: "declared", slug: "declared", runtimeClass: "scale-to-zero", queues }]
      })
      const queues = [
        { name: "jobs", deadLetterQueue: "dead", consumer: { path: "/jobs", maxBatchSize: 20 } },
        { name: "dead", retentionSeconds: 3600 }
      ]
      const apply = (wanted: ReadonlyArray<object>) =>
        call("POST", "/v1/orgs/main/manifest/apply", {
          token: session,
          body: { manifest: manifest(wanted), prune: false }
        })
      const applied = yield* apply(queues)
      assert.strictEqual(applied.status, 202, applied.text)
      const list = call("GET", "/v1/orgs/main/projects/declared/queues")
      const ready = yield* until(
        Effect.map(list, ({ body }) => body),
        (found) => found.length === 2 && found.every((one: { status: string }) => one.status === "ready")
      )
      assert.strictEqual(ready[1].deadLetterQueue, "dead")
      const plan = yield* call("POST", "/v1/orgs/main/manifest/plan", {
        body: manifest(queues)
      })
      assert.strictEqual(plan.status, 200, plan.text)
      assert.deepStrictEqual(
        plan.body.changes.filter(
          ({ kind, action }: { kind: string; action: string }) => kind === "Queue" && action !== "noop"
        ),
        []
      )
      const exported = yield* call("GET", "/v1/orgs/main/manifest")
      const mine = exported.body.projects.find(({ slug }: { slug: string }) => slug === "declared")
      assert.deepStrictEqual(
        mine.queues.map(({ name }: { name: string }) => name),
        ["dead", "jobs"]
      )
      // What was exported asks for what is there.
      const again = yield* apply(mine.queues)
      assert.strictEqual(again.status, 202, again.text)
    })
  )
})
