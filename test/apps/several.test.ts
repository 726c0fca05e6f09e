/** Apps of several instances behind a real edge: how requests are spread over them, and how they are replaced and scaled. */
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Ref from "effect/Ref"
import { campaign } from "#test/campaigns/campaign.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { TestEdge } from "#test/setup/edge.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  answerOf,
  appPlane,
  containersOf,
  deploy,
  listener,
  makeShop,
  readApp,
  readInstances,
  ready
} from "./world.ts"

const patience = 300_000
/** Between two looks or requests of a loop: one that asks without a pause takes the processor from what it watches. */
const paceMs = 25
/** A slow machine has to look and write within the time for which a replaced instance drains. */
const times = { drainMs: 10_000, livenessMs: 500, lookMs: 500, scaleMs: 500, scaleDownMs: 2_000 }

/** A WebSocket that is taken up, until the scope closes. `says`: what has come back of what was sent. */
const webSocket = Effect.fnUntraced(function* (host: string) {
  const { tlsTo } = yield* TestEdge
  const said = { text: "", isOpen: true }
  const socket = yield* Effect.acquireRelease(
    Effect.sync(() => tls.connect(tlsTo(host))),
    (one) => Effect.sync(() => one.destroy())
  )
  socket.on("data", (chunk: Buffer) => {
    said.text += chunk.toString()
  })
  socket.on("error", () => undefined)
  socket.on("close", () => {
    said.isOpen = false
  })
  // The example of RFC 6455, section 1.3, whose answer the listener knows.
  const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n${key}\r\n`)
  yield* eventually(
    "the WebSocket is open",
    Effect.sync(() => said.text.startsWith("HTTP/1.1 101"))
  )
  return { socket, said }
})

const healthy = (path: string, count: number) =>
  eventually(
    `${count} are healthy`,
    readInstances(path),
    (all) =>
      all.filter(({ state }) => state === "healthy").length === count &&
      all.every(({ state }) => state === "healthy" || state === "ended")
  )

layer(appPlane(times), { excludeTestServices: true, timeout: "3 minutes" })("several instances", (it) => {
  campaign(
    it.effect,
    "several-instances",
    "several instances take requests together, are replaced one by one without a lost one, and go with all that they have",
    { rounds: 0, roundMs: patience },
    () =>
      Effect.gen(function* () {
        const { call, sql, session } = yield* Plane
        const { request } = yield* TestEdge
        const { path, host } = yield* makeShop("several")
        yield* ready(path, yield* deploy(path, listener("one")))
        const changed = yield* call("PATCH", `${path}/app`, { body: { instances: 2 } })
        assert.strictEqual(changed.status, 200, changed.text)
        yield* healthy(path, 2)
        const answered = yield* eventually(
          "both take requests",
          Effect.all(Array.from({ length: 10 }, () => answerOf(host))),
          (all) => new Set(all).size === 2
        )
        assert.isTrue(answered.every((text) => text.startsWith("200 one ")))

        const answers = yield* Ref.make<ReadonlyArray<string>>([])
        const ask = (at: string) =>
          Effect.forkScoped(
            Effect.forever(
              Effect.flatMap(request(host, at), ({ status, text }) =>
                Ref.update(answers, (all) => [...all, `${status} ${text.split(" ")[0]}`])
              ).pipe(Effect.delay(paceMs))
            )
          )
        const asking = yield* Effect.all([ask("/"), ask("/"), ask("/slow")])
        const before = yield* webSocket(host)
        const most = yield* Ref.make(0)
        const counting = yield* Effect.forkScoped(
          Effect.forever(
            Effect.flatMap(
              sql("select count(*)::int as n from app_instance where state in ('starting', 'healthy')"),
              ([row]) => Ref.update(most, (now) => Math.max(now, Number(row?.["n"])))
            ).pipe(Effect.delay(paceMs))
          )
        )
        const second = yield* deploy(path, listener("two"))
        yield* ready(path, second)
        before.socket.write("still there?")
        yield* eventually(
          "a WebSocket goes on after its instance was replaced",
          Effect.sync(() => before.said.text.endsWith("still there?"))
        )
        const after = yield* webSocket(host)
        yield* eventually(
          "it ends with its instance",
          Effect.sync(() => !before.said.isOpen)
        )
        yield* healthy(path, 2)
        yield* Fiber.interruptAll([...asking, counting])
        after.socket.write("and this?")
        yield* eventually(
          "one that came later stays",
          Effect.sync(() => after.said.text.endsWith("and this?"))
        )
        assert.deepStrictEqual([...new Set(yield* Ref.get(answers))].sort(), ["200 one", "200 two"])
        assert.strictEqual(yield* Ref.get(most), 3)

        const app = yield* readApp(path)
        const gone = yield* call("DELETE", path, { token: session })
        assert.strictEqual(gone.status, 200, gone.text)
        yield* eventually(
          "no container is left",
          containersOf(`svc.app=${app.id}`),
          (names) => names.length === 0
        )
        yield* eventually(
          "nothing is known of it",
          sql(`select 1 from app where uid = '${app.id}' union all
            select 1 from app_instance where app_uid = '${app.id}' union all
            select 1 from deployment d join resource r on r.uid = d.uid where r.project_id in
              (select project_id from resource where uid = '${app.id}')`),
          (rows) => rows.length === 0
        )
      })
  )

  campaign(
    it.effect,
    "several-failing",
    "are followed by another where one answers its health check no more or ends, and requests go to those that answer",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { request } = yield* TestEdge
        const { path, host } = yield* makeShop("hung")
        yield* ready(path, yield* deploy(path, listener("one")))
        const body = { instances: 2, healthCheck: { path: "/health", failures: 2 } }
        assert.strictEqual((yield* call("PATCH", `${path}/app`, { body })).status, 200)
        const [first, second] = (yield* healthy(path, 2)).map(({ id }) => id)
        yield* request(host, "/fail")
        const now = yield* eventually(
          "another one has taken its place",
          readInstances(path),
          (all) =>
            all.length === 3 &&
            all.filter(({ state }) => state === "healthy").length === 2 &&
            all.every(({ state }) => state === "healthy" || state === "ended")
        )
        const ids = now.filter(({ state }) => state === "healthy").map(({ id }) => id)
        // The other one stayed.
        assert.strictEqual(ids.filter((id) => id === first || id === second).length, 1)
        assert.strictEqual((yield* request(host, "/health")).status, 200)
        assert.strictEqual((yield* readApp(path)).status, "ready")

        const answers = yield* Ref.make<ReadonlyArray<string>>([])
        const asking = yield* Effect.forkScoped(
          Effect.forever(
            Effect.flatMap(answerOf(host), (text) => Ref.update(answers, (all) => [...all, text])).pipe(
              Effect.delay(paceMs)
            )
          )
        )
        yield* request(host, "/leave", { method: "POST", body: "now" })
        yield* eventually(
          "another one has come",
          readInstances(path),
          (all) =>
            all.length === 4 &&
            all.filter(({ state }) => state === "healthy").length === 2 &&
            all.every(({ state }) => state === "healthy" || state === "ended")
        )
        yield* Fiber.interrupt(asking)
        // What it had taken when it ended is lost with it.
        const lost = (yield* Ref.get(answers)).filter((text) => !text.startsWith("200 one "))
        assert.isAtMost(lost.length, 1, lost.join())
      })
  )

  campaign(
    it.effect,
    "autoscaling",
    "become more with the requests under way, to their bound, and fewer again",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const { request } = yield* TestEdge
        const { path, host } = yield* makeShop("scaled")
        yield* ready(path, yield* deploy(path, listener("one")))
        // A machine that is busy answers no check in time.
        const body = { maxInstances: 3, requestsPerInstance: 1, healthCheck: { failures: 0 } }
        assert.strictEqual((yield* call("PATCH", `${path}/app`, { body })).status, 200)
        yield* Effect.scoped(
          Effect.gen(function* () {
            // Requests that came before the edge knew of its bounds are not counted.
            const { id } = yield* readApp(path)
            const counted = sql(`select 1 from edge_load where requests > 0
              and environment_uid = (select environment_uid from app where uid = '${id}')`)
            yield* eventually(
              "the edge counts its requests",
              Effect.andThen(request(host, "/slow"), counted),
              (rows) => rows.length > 0
            )
            yield* Effect.all(Array.from({ length: 5 }, () => webSocket(host)))
            yield* healthy(path, 3)
          })
        )
        yield* healthy(path, 1)
        assert.isTrue((yield* answerOf(host)).startsWith("200 one "))
      })
  )
})
