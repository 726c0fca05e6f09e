/** What a tenant does to a server of its own is nobody else's matter. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { cacheSizes, databaseSizes } from "#schemas/catalog.ts"
import { makeHolding } from "#src/infra/host/server-holding.ts"
import { cacheLimits, databaseLimits, oomScores, type ServerLimits } from "#src/infra/host/server-limits.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import {
  connectionFlood,
  greedyScript,
  greedyStatement,
  neverReading,
  type Reach,
  usualLoad
} from "#test/setup/hostile.ts"
import { connectionString } from "#test/setup/shown.ts"
import { until } from "#test/setup/wait.ts"

const limitsOf = {
  database: databaseLimits(databaseSizes["db-n1"]),
  cache: cacheLimits(cacheSizes["cache-n1"], true)
}

/** The most that the group of a server has held, as the kernel has counted it. */
const peak = (folder: string, name: string): number => {
  const file = ["memory.peak", "memory.max_usage_in_bytes"]
    .map((one) => path.join(folder, name, one))
    .find((one) => fs.existsSync(one))
  return file === undefined ? Number.NaN : Number(fs.readFileSync(file, "utf8"))
}

/** Stopped at the latest when the test ends, however it ends. */
const running = <A extends { readonly stop: () => Promise<void> }>(begin: Effect.Effect<A>) =>
  Effect.acquireRelease(begin, (one) => Effect.promise(one.stop))

layer(testPlane(), { excludeTestServices: true })("isolation of servers", (it) => {
  campaign(
    process.platform === "linux" ? it.effect : it.effect.skip,
    "server-isolation",
    "clients that take what they can from their own servers cost nobody else anything, and are told why theirs ended",
    { rounds: 0, roundMs: 600_000 },
    () =>
      Effect.gen(function* () {
        const { call, dataDir, tenant } = yield* Plane
        const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
        const victim = yield* tenant()
        const made = Effect.fnUntraced(function* (token: string | undefined, base: string, body: object) {
          const options = token === undefined ? {} : { token }
          const answer = yield* call("POST", base, { ...options, body })
          assert.strictEqual(answer.status, 201, answer.text)
          return answer
        })
        const databaseOf = Effect.fnUntraced(function* (org: string, token?: string) {
          yield* made(token, `/v1/orgs/${org}/projects`, { name: "Shop", slug: "shop" })
          const base = `/v1/orgs/${org}/projects/shop/database`
          const answer = yield* made(token, base, {})
          const shown: unknown = answer.body.connectionString
          const url =
            typeof shown === "string"
              ? shown
              : yield* Effect.promise(() =>
                  until("it is ready", async () => {
                    const { status, body } = await Effect.runPromise(
                      call("POST", `${base}/rotate`, token === undefined ? {} : { token })
                    )
                    return status === 200 && String(body.connectionString)
                  })
                )
          const reach: Reach = { url, ca }
          const { body } = yield* call("GET", base, token === undefined ? {} : { token })
          return { base, id: String(body.id), reach }
        })
        const quiet = yield* databaseOf(victim.slug, victim.adminKey)
        const hostile = yield* databaseOf("main")
        const caches = "/v1/orgs/main/projects/shop/caches"
        const cache = yield* made(undefined, caches, { name: "one", sku: "cache-n1", region: "local" })
        const cacheId = String(cache.body.id)
        const cacheReach: Reach = {
          url: yield* connectionString(cache, `${caches}/${cacheId}/credentials/rotate`),
          ca
        }

        const holding = yield* makeHolding({ dataDir, serverLimits: "auto" })
        const placed = yield* holding.placed
        const pidFile = (kind: string, id: string, name: string) => path.join(dataDir, kind, id, name)
        const pidOf = (file: string) => Number.parseInt(fs.readFileSync(file, "utf8"), 10)
        const servers: ReadonlyArray<readonly [id: string, file: string, limits: ServerLimits]> = [
          [quiet.id, pidFile("databases", quiet.id, "data/postmaster.pid"), limitsOf.database],
          [hostile.id, pidFile("databases", hostile.id, "data/postmaster.pid"), limitsOf.database],
          [cacheId, pidFile("caches", cacheId, "redis.pid"), limitsOf.cache]
        ]
        const heldAsTheyShould = Effect.gen(function* () {
          for (const [id, file, limits] of servers) {
            const held = yield* holding.look(id, pidOf(file))
            assert.strictEqual(held.oomScore, oomScores.server)
            if (placed.usable) {
              assert.isTrue(held.group?.inside)
              assert.deepStrictEqual(held.group?.limits, limits)
            } else assert.isUndefined(held.group)
          }
        })
        yield* heldAsTheyShould
        const quietPid = pidOf(servers[0]![1])

        const usual = yield* running(Effect.promise(() => usualLoad(quiet.reach)))
        // What only buffers bound is tried everywhere, what takes control groups only where there are some.
        const kinds = placed.usable
          ? [neverReading, connectionFlood, greedyStatement, greedyScript]
          : [neverReading, connectionFlood]
        const clients = yield* Effect.forEach(kinds, (begin) =>
          running(
            Effect.sync(() =>
              begin(begin === neverReading || begin === greedyScript ? cacheReach : hostile.reach)
            )
          )
        )
        process.stderr.write(placed.usable ? "with control groups\n" : `without: ${placed.why}\n`)
        const answeredAtLast = (enough: number) => {
          const from = usual.answered()
          return until("the other tenant works", () => usual.answered() >= from + enough)
        }
        yield* Effect.promise(() => answeredAtLast(200))
        const robbed = placed.usable ? [hostile.id, cacheId] : []
        for (const id of robbed)
          yield* Effect.promise(() =>
            until("the kernel has ended a process of the server", async () => {
              const counts = await Effect.runPromise(holding.kills)
              return (counts.get(id) ?? 0) > 0
            })
          )
        if (placed.usable) {
          const folder = placed.place.folders.get("memory") ?? ""
          // The kernel charges some pages at a time, and counts what it then takes back.
          for (const [id, , { memoryBytes }] of servers)
            assert.isAtMost(peak(folder, id), memoryBytes + 2 ** 20, "a group never has more than its limit")
        }
        yield* Effect.promise(() => answeredAtLast(200))
        yield* Effect.promise(() => Promise.all(clients.map((client) => client.stop())))
        yield* Effect.promise(() => usual.stop())
        assert.deepStrictEqual(usual.failures, [], "every transaction of the other tenant was answered")
        assert.strictEqual(pidOf(servers[0]![1]), quietPid, "and its server never ended")
        assert.strictEqual((yield* holding.look(quiet.id, undefined)).kills, 0)

        for (const id of robbed)
          yield* Effect.promise(() =>
            until("it is told", async () => {
              const { body } = await Effect.runPromise(call("GET", `/v1/orgs/main/resources/${id}/events`))
              return JSON.stringify(body).includes('"OutOfMemory"')
            })
          )
        for (const base of [hostile.base, `${caches}/${cacheId}`]) {
          yield* Effect.promise(() =>
            until(`${base} has healed`, async () => {
              const { body } = await Effect.runPromise(call("GET", base))
              return body.status === "ready"
            })
          )
        }
        // What was ready at the last look may have been robbed once more after it.
        const healed = yield* running(
          Effect.promise(() =>
            until("it can be used again", () => usualLoad(hostile.reach, 1).catch(() => undefined))
          )
        )
        yield* Effect.promise(() => until("it works again", () => healed.answered() > 0))
        yield* heldAsTheyShould
      }).pipe(Effect.scoped)
  )
})
