/** What visitors notice of changes and troubles of an edge: nothing. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import type * as http from "node:http"
import * as https from "node:https"
import * as path from "node:path"
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { TestEdge } from "#test/setup/edge.ts"
import { edgeMachine } from "#test/setup/edge-process.ts"
import { postgresProxy } from "#test/setup/postgres-proxy.ts"
import { killNaming } from "#test/setup/processes.ts"
import { eventually, sleep, until } from "#test/setup/wait.ts"
import { anApp } from "./app.ts"

/** Ticks for ever at `/events`; what an upgraded connection says comes back; all else is answered at once. */
const answer: http.RequestListener = (request, response) => {
  if (request.url !== "/events") return void response.end("here")
  response.writeHead(200, { "content-type": "text/event-stream" })
  const ticking = setInterval(() => response.write("data: tick\n\n"), 50)
  response.once("close", () => clearInterval(ticking))
}
const withEcho = (server: http.Server) => {
  server.on("upgrade", (_request, socket) => {
    socket.on("error", () => socket.destroy())
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )
    socket.pipe(socket)
  })
}

/** A connection that stays: bytes come on it as long as it is whole. */
const openConnection = (to: tls.ConnectionOptions, head: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = tls.connect(to, () => socket.write(`${head}\r\n\r\n`))
      const state = { socket, bytes: 0, closed: false }
      socket.on("data", (chunk: Buffer) => {
        state.bytes += chunk.length
      })
      socket.on("error", () => {})
      socket.once("close", () => {
        state.closed = true
      })
      return state
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )

interface Visit {
  readonly host: string
  /** Status that is right for it. */
  readonly status: number
}

/** Visitors for ever, each with one request after another; what they get that they should not is kept. */
const visitors = Effect.fnUntraced(function* (to: tls.ConnectionOptions, visits: ReadonlyArray<Visit>) {
  const state = { answered: visits.map(() => 0), wrong: [] as Array<string>, on: true }
  const one = (agent: https.Agent, host: string) =>
    new Promise<string>((resolve) => {
      const request = https.get(
        { ...to, servername: host, agent, path: "/", headers: { host } },
        (response) => {
          response.resume()
          response.once("end", () => resolve(String(response.statusCode)))
          response.once("error", (error) => resolve(error.message))
        }
      )
      request.once("error", (error) => resolve(error.message))
    })
  const loop = async ({ host, status }: Visit, index: number) => {
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1 })
    while (state.on) {
      const got = await one(agent, host)
      if (got !== String(status)) state.wrong.push(`${host}: ${got} instead of ${status}`)
      state.answered[index] = (state.answered[index] ?? 0) + 1
      await sleep(5)
    }
    agent.destroy()
  }
  const loops = visits.map(loop)
  yield* Effect.addFinalizer(() =>
    Effect.promise(() => {
      state.on = false
      return Promise.all(loops)
    })
  )
  return state
})

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("visitors of an edge", (it) => {
  campaign(
    it.effect,
    "edge-under-load",
    "no request fails and no stream ends while hosts come and go, agent or store is away, or another edge is lost",
    {},
    Effect.fnUntraced(function* ({ seed, full }) {
      const random = new Seeded(seed)
      const { databaseUrl, sql } = yield* Plane
      const [machine, other] = [yield* edgeMachine, yield* edgeMachine]
      const store = yield* postgresProxy(Redacted.make(databaseUrl))
      let agent = yield* machine.start(Redacted.value(store.url))
      yield* other.start(databaseUrl)
      yield* machine.listens
      yield* Effect.gen(function* () {
        const { tlsTo, request, requestPlain } = yield* TestEdge
        const { host, uid } = yield* anApp(answer, withEcho)
        const closed = yield* anApp(answer)
        yield* sql(`update edge_site set access = 'organization' where environment_uid = '${closed.uid}'`)
        yield* eventually("it is closed", request(closed.host, "/"), ({ status }) => status === 401)

        const to = tlsTo(host)
        const socket = yield* openConnection(
          to,
          `GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==`
        )
        const events = yield* openConnection(to, `GET /events HTTP/1.1\r\nHost: ${host}`)
        yield* Effect.promise(() => until("they are open", () => socket.bytes > 0 && events.bytes > 0))
        const load = yield* visitors(to, [
          { host, status: 200 },
          { host, status: 200 },
          // The agent answers these.
          { host: closed.host, status: 401 },
          { host: "nobody.apps.localhost", status: 404 }
        ])
        /** Until every visitor was answered some times more, and both connections have carried something. */
        const goesOn = Effect.promise(async () => {
          const before = { answered: [...load.answered], socket: socket.bytes, events: events.bytes }
          const isWhole = () => load.wrong.length === 0 && !socket.closed && !events.closed
          socket.socket.write("here")
          await until(
            "visitors are answered",
            () =>
              !isWhole() ||
              (load.answered.every((count, index) => count > (before.answered[index] ?? 0) + 3) &&
                socket.bytes > before.socket &&
                events.bytes > before.events)
          )
          assert.deepStrictEqual([...new Set(load.wrong)], [])
          assert.isFalse(socket.closed, "the WebSocket was closed")
          assert.isFalse(events.closed, "the event stream was closed")
        })

        const add = (names: ReadonlyArray<string>) =>
          sql(`insert into edge_host (hostname, org_id, environment_uid)
            select name, org_id, environment_uid from edge_site, unnest(array['${names.join("','")}']) name
            where environment_uid = '${uid}'`)
        const remove = (names: ReadonlyArray<string>) =>
          sql(`delete from edge_host where hostname in ('${names.join("','")}')`)
        const isKnown = (name: string, known: boolean) =>
          eventually(
            `${name} is ${known ? "" : "not "}known`,
            requestPlain(name, "/"),
            ({ status }) => (status === 308) === known
          )

        const troubles = {
          hosts: Effect.gen(function* () {
            const names = Array.from({ length: full ? 200 : 40 }, () => `${randomUUID()}.example`)
            for (const change of [add, remove]) {
              for (let at = 0; at < names.length; ) {
                const some = names.slice(at, at + random.int(1, 10))
                yield* change(some)
                at += some.length
              }
              yield* isKnown(names.at(-1) ?? "", change === add)
              yield* goesOn
            }
          }),
          agent: Effect.gen(function* () {
            const next = yield* machine.start(Redacted.value(store.url))
            yield* agent.stop
            agent = next
            yield* goesOn
          }),
          store: Effect.gen(function* () {
            const name = `${randomUUID()}.example`
            yield* store.goAway
            yield* add([name])
            for (let left = full ? random.int(1, 20) : 2; left > 0; left--) yield* goesOn
            yield* store.comeBack
            yield* isKnown(name, true)
          }),
          other: Effect.gen(function* () {
            const folder = path.join(other.dataDir, "edge")
            fs.rmSync(folder, { recursive: true })
            assert.isAbove(killNaming(`${folder}/haproxy.cfg`), 0)
            yield* goesOn
            yield* other.listens
            const elsewhere = yield* Effect.provide(TestEdge, other.client)
            assert.strictEqual((yield* elsewhere.request(host, "/")).status, 200)
          })
        }
        const order = Object.values(troubles)
          .map((trouble) => ({ trouble, place: random.nextDoubleUnsafe() }))
          .sort((one, next) => one.place - next.place)
        for (const { trouble } of order) yield* trouble
        yield* goesOn
      }).pipe(Effect.provide(machine.client))
    })
  )
})
