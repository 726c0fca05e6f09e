/** The ledger in several processes, which only meet in the store, and some of which are killed. */
import { spawn } from "node:child_process"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { leaseSeconds } from "#src/ai-gateways/Ledger.ts"
import { sweep } from "#src/ai-gateways/sweep.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { withinOneMonth } from "#test/budgets/periods.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import { eventually } from "#test/setup/wait.ts"
import type { Plan } from "./ledger-process.ts"
import { booksOf, type Gateway, newGateway, usd } from "./world.ts"

class Store extends Context.Service<Store, string>()("test/StoreUrl") {}
const world = Layer.unwrap(
  Effect.map(migratedDatabase, (url) =>
    Resources.layer.pipe(
      Layer.provide(KeyRing.layerEphemeral),
      Layer.provideMerge(Layer.merge(Db.layer({ url }), Layer.succeed(Store, Redacted.value(url)))),
      Layer.provide(withinOneMonth)
    )
  )
)

/** Its end is the scope's at the latest. */
const start = Effect.fnUntraced(function* (
  { orgId, projectId, gateway }: Gateway,
  does: Omit<Plan, "url" | "orgId" | "projectId" | "gateway">
) {
  const plan: Plan = { url: yield* Store, orgId, projectId, gateway, ...does }
  const script = path.join(import.meta.dirname, "ledger-process.ts")
  return yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, [script, JSON.stringify(plan)], {
        stdio: ["ignore", "pipe", "inherit"]
      })
      let text = ""
      child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk
      })
      const ended = new Promise<number | null>((resolve) => child.once("close", (code) => resolve(code)))
      return {
        ended: Effect.promise(() => ended),
        /** Ids of calls that were sent; the last line of a killed process may be half of one. */
        sent: () => text.split("\n").filter((line) => line.length === 36),
        kill: Effect.suspend(() => {
          child.kill("SIGKILL")
          return Effect.promise(() => ended)
        })
      }
    }),
    ({ kill }) => kill
  )
})

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("the ledger in processes", (it) => {
  it.effect("200 callers in two of them against a budget for 50 calls make 50", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway(1)
      const [one, other] = yield* Effect.all([
        start(gateway, { callers: 100, calls: 1, most: 0.02 * usd, cost: 0.02 * usd, ms: 20 }),
        start(gateway, { callers: 100, calls: 1, most: 0.02 * usd, cost: 0.02 * usd, ms: 20 })
      ])
      assert.deepStrictEqual([yield* one.ended, yield* other.ended], [0, 0])
      assert.strictEqual(one.sent().length + other.sent().length, 50)
      assert.deepInclude(yield* booksOf(gateway), { spent: usd, reserved: 0, requests: 50 })
    })
  )

  campaign(
    it.effect,
    "ai-ledger-kills",
    "processes that are killed at any moment leave nothing reserved for good, and each call that was sent is charged",
    { rounds: 1 },
    Effect.fnUntraced(function* ({ seed, full }) {
      const { engine: sql } = yield* Db
      const random = new Seeded(seed)
      const gateway = yield* newGateway(1_000)
      const sent = new Set<string>()
      const work = { callers: 20, calls: 100_000, most: 1_000, cost: 10, ms: 10 }
      const survivor = yield* start(gateway, { ...work, calls: full ? 2_000 : 60 })
      const killed = Effect.gen(function* () {
        const child = yield* start(gateway, work)
        yield* eventually(
          "it makes calls",
          Effect.sync(() => child.sent().length),
          (count) => count > 0
        )
        yield* Effect.sleep(random.int(0, 300))
        yield* child.kill
        for (const id of child.sent()) sent.add(id)
      })
      for (let kill = 0; kill < (full ? 20 : 2); kill++) yield* killed
      assert.strictEqual(yield* survivor.ended, 0)
      // One that dies between two of its calls leaves nothing behind, and then nothing is shown.
      for (let more = 0; more < 50 && (yield* booksOf(gateway)).reserved === 0; more++) yield* killed
      for (const id of survivor.sent()) sent.add(id)
      const before = yield* booksOf(gateway)
      assert.isAbove(before.reserved, 0)
      // Their time passes.
      yield* sql`update ai_gateway_holder set alive_until = alive_until - make_interval(secs => ${leaseSeconds * 2})`
      yield* sql`update ai_gateway_reservation
        set reserved_at = reserved_at - make_interval(secs => ${leaseSeconds * 2})`
      yield* sweep
      const books = yield* booksOf(gateway)
      assert.strictEqual(books.reserved, 0)
      assert.strictEqual(books.spent, before.spent + before.reserved)
      const rows = yield* sql<{ readonly id: string }>`
        select id from ai_gateway_request where org_id = ${gateway.orgId}`
      const charged = new Set(rows.map(({ id }) => id))
      assert.deepStrictEqual(
        [...sent].filter((id) => !charged.has(id)),
        []
      )
    })
  )
})
