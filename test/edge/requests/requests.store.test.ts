import { randomUUIDv7 } from "node:crypto"
import * as net from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Scope from "effect/Scope"
import type { LoggedRequest } from "#src/edge/requests/log-format.ts"
import { RequestRecords, recentMost } from "#src/edge/requests/RequestRecords.ts"
import { receive } from "#src/edge/requests/receiver.ts"
import { makeTally } from "#src/edge/requests/tally.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { logged, noon } from "./logged.ts"

/** An organization with a site of its own. */
const site = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { id: orgId } = yield* makeOrganization()
  const { production } = yield* makeProject(orgId, "shop")
  yield* sql`insert into edge_site (org_id, environment_uid, label)
    values (${orgId}, ${production}, ${production}) on conflict do nothing`
  return { orgId, environment: production }
})

const hour = { from: new Date(noon), to: new Date(noon + 3_600_000) }

/** As many batches as they need. */
const batchOf = (requests: ReadonlyArray<LoggedRequest>, room = requests.length) => {
  const tally = makeTally({ perEnvironment: room, requests: room, sums: 100 })
  for (const [index, one] of requests.entries()) tally.add(one, noon + index)
  return tally.take() ?? { requests: [], minutes: [], lost: 0 }
}

layer(
  RequestRecords.layer.pipe(
    Layer.provideMerge(Resources.layer),
    Layer.provide(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  {
    excludeTestServices: true
  }
)("requests of environments", (it) => {
  it.effect("are listed to their organization alone, newest first, by class, path and time", () =>
    Effect.gen(function* () {
      const records = yield* RequestRecords
      const [mine, other] = [yield* site, yield* site]
      const sent = [
        logged(mine.environment, { path: "/a/1" }),
        logged(other.environment, { path: "/secret" }),
        logged(mine.environment, { path: "/a/2", status: 404, durationMs: 0 }),
        logged(mine.environment, { path: "/b", status: null, end: "CR" }),
        logged(randomUUIDv7(), { path: "/nobody" })
      ]
      yield* records.add(batchOf(sent))
      const list = (filter = {}, limit = 10, before?: string) =>
        Effect.map(records.list(mine.orgId, mine.environment, filter, limit, before), (found) =>
          found.map(({ path, number }) => `${number} ${path}`)
        )
      assert.deepStrictEqual(yield* list(), ["3 /b", "2 /a/2", "1 /a/1"])
      assert.deepStrictEqual(yield* list({}, 1, "3"), ["2 /a/2"])
      assert.deepStrictEqual(yield* list({ statusClass: 4 }), ["2 /a/2"])
      assert.deepStrictEqual(yield* list({ statusClass: 0 }), ["3 /b"])
      assert.deepStrictEqual(yield* list({ path: "/a/" }), ["2 /a/2", "1 /a/1"])
      assert.deepStrictEqual(yield* list({ path: "%" }), [])
      assert.deepStrictEqual(yield* list({ since: new Date(noon) }), ["2 /a/2"])
      // Who names the environment of somebody else sees nothing of it.
      assert.deepStrictEqual(yield* records.list(mine.orgId, other.environment, {}, 10), [])
      assert.deepStrictEqual(yield* records.minutes(mine.orgId, other.environment, hour.from, hour.to), [])
    })
  )

  it.effect("are kept up to a number, and counted all", () =>
    Effect.gen(function* () {
      const records = yield* RequestRecords
      const { orgId, environment } = yield* site
      const { engine: sql } = yield* Db
      const many = (count: number, from: number) =>
        Array.from({ length: count }, (_, index) => logged(environment, { path: `/${from + index}` }))
      const most = recentMost / 2
      for (let round = 0; round < 3; round++) yield* records.add(batchOf(many(most, round * most)))
      const [row] = yield* sql<{ count: number; min: bigint; max: bigint }>`
        select count(*)::int, min(number), max(number) from edge_request where environment_uid = ${environment}`
      assert.deepStrictEqual(row, { count: recentMost, min: BigInt(most + 1), max: BigInt(3 * most) })
      const [newest] = yield* records.list(orgId, environment, {}, 1)
      assert.strictEqual(newest?.path, `/${3 * most - 1}`)
      const sums = yield* records.minutes(orgId, environment, hour.from, hour.to)
      assert.strictEqual(sums[0]?.requests, 3 * most)
    })
  )

  it.effect("of several edges add up", () =>
    Effect.gen(function* () {
      const records = yield* RequestRecords
      const sites = [yield* site, yield* site, yield* site]
      const batch = (order: typeof sites) =>
        batchOf(
          order.flatMap(({ environment }) => [
            logged(environment, { durationMs: 5 }),
            logged(environment, { durationMs: 700, status: 502 })
          ])
        )
      yield* Effect.forEach(
        Array.from({ length: 12 }, (_, index) => batch(index % 2 === 0 ? sites : sites.toReversed())),
        records.add,
        { concurrency: "unbounded", discard: true }
      )
      for (const { orgId, environment } of sites) {
        const listed = yield* records.list(orgId, environment, {}, 100)
        assert.deepStrictEqual(
          listed.map(({ number }) => Number(number)),
          Array.from({ length: 24 }, (_, index) => 24 - index)
        )
        const [good, bad, ...more] = yield* records.minutes(orgId, environment, hour.from, hour.to)
        assert.deepStrictEqual(more, [])
        assert.deepInclude(good, { statusClass: 2, requests: 12, bytesIn: 1200, durationMs: 60 })
        assert.deepStrictEqual(good?.durations, [12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        assert.deepStrictEqual(bad?.durations, [0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0])
      }
    })
  )

  it.effect("arrive as lines; what is none of them harms nothing, and losses are counted", () =>
    Effect.gen(function* () {
      const records = yield* RequestRecords
      const { orgId, environment } = yield* site
      const port = yield* Effect.promise(() => freePort())
      const scope = yield* Scope.make()
      yield* Scope.provide(receive(port), scope)
      const connection = Effect.acquireRelease(
        Effect.promise(
          () =>
            new Promise<net.Socket>((resolve) => {
              const socket = net.connect(port, "127.0.0.1", () => resolve(socket))
              socket.on("error", () => {})
            })
        ),
        (socket) => Effect.sync(() => socket.destroy())
      )
      const socket = yield* connection
      const write = (text: string | Uint8Array, to = socket) =>
        Effect.callback<void>((resume) => void to.write(text, () => resume(Effect.void)))
      const send = (text: string) => write(`${text}\n`)
      const droppedBy = (reason: string) =>
        Effect.map(Metric.snapshot, (all) => {
          const found = all.find(
            ({ id, attributes }) =>
              id === "svc_edge_requests_dropped_total" && attributes?.["reason"] === reason
          )
          return found?.type === "Counter" ? Number(found.state.count) : 0
        })
      const before = [yield* droppedBy("unreadable"), yield* droppedBy("lost")] as const
      const line = (number: number, path: string) =>
        JSON.stringify({ source: "tls-1", number, at: Date.now(), ...logged(environment, { path }) })
      // Lines come as they like: several at a time, and in parts.
      const [first, second] = [line(1, "/first").slice(0, 20), line(1, "/first").slice(20)]
      yield* write(first)
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      yield* write(`${second}\n<134>haproxy: not one of ours\n12 events dropped\n`)
      // One that never ends is another's.
      yield* write(new Uint8Array(9000).fill(255), yield* connection)
      yield* send(line(2, "/").replace(environment, "-"))
      // Lines 3 and 4 are lost.
      yield* send(line(5, "/\u001b[2Jx"))
      const paths = Effect.map(records.list(orgId, environment, {}, 10), (found) =>
        found.map(({ path }) => path)
      )
      yield* eventually("lines are stored", paths, (found) => found.length === 2)
      assert.deepStrictEqual(yield* paths, ["/\\u001b[2Jx", "/first"])
      yield* eventually("losses are counted", droppedBy("lost"), (count) => count === before[1] + 2)
      assert.strictEqual(yield* droppedBy("unreadable"), before[0] + 2)

      const taken = yield* Effect.flip(Effect.scoped(receive(port)))
      assert.include(taken.message, "EADDRINUSE")

      // What came just before the end is stored.
      yield* send(line(6, "/last"))
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* paths)[0], "/last")
    })
  )
})
