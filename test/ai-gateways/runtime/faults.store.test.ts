/** Clients that leave at any moment, many at once, and a store that goes away: the books hold. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { type Behaviour, chunk, done, says, streaming, usageOf, write } from "./upstream.ts"
import { newGateway, Providers, settled, type TestGateway, worldLayer } from "./world.ts"

const generous = {
  SVC_AI_GATEWAY_RATE_LIMIT: "1000000",
  SVC_AI_KEY_RATE_LIMIT: "1000000",
  SVC_AI_GATEWAY_CONCURRENCY: "1000",
  SVC_AI_KEY_CONCURRENCY: "1000"
}

const send = ({ baseURL, apiKey }: TestGateway, more: object = {}, signal?: AbortSignal) =>
  fetch(`${baseURL}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "svc/fast",
      messages: [{ role: "user", content: "hello" }],
      max_tokens: 10,
      ...more
    }),
    ...(signal === undefined ? {} : { signal })
  })

layer(worldLayer(generous), { excludeTestServices: true, timeout: "3 minutes" })("the books", (it) => {
  it.effect("are never over the budget, however many calls come at once", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      // Each of them costs 0.021 dollars, and reserves more than five times that.
      const gateway = yield* newGateway({ monthlyBudgetUsd: 2 })
      const before = first.seen.length
      first.behave(says(["ten"], usageOf(1, 10)))
      const statuses = yield* Effect.promise(() =>
        Promise.all(
          Array.from({ length: 100 }, async () => {
            const response = await send(gateway)
            await response.text()
            return response.status
          })
        )
      )
      const made = statuses.filter((status) => status === 200).length
      assert.sameMembers([...new Set(statuses)], [200, 402])
      assert.strictEqual(first.seen.length - before, made)
      const { usage } = yield* settled(gateway, made)
      assert.isAtMost(usage.spentUsd, 2)
      assert.closeTo(usage.spentUsd, made * 0.021, 1e-6)
      assert.isAtLeast(made, 9)
    })
  )

  campaign(
    it.effect,
    "ai-aborts",
    "clients that leave at any moment leave nothing reserved, no place taken, and are charged once for each call that was sent",
    { rounds: 1 },
    Effect.fnUntraced(function* ({ seed, full }) {
      const { first, second } = yield* Providers
      const random = new Seeded(seed)
      const gateway = yield* newGateway({ monthlyBudgetUsd: 10_000, maxRetries: 1 })
      const before = first.seen.length + second.seen.length
      const slowly: Behaviour = async (_, response) => {
        await sleep(random.int(0, 20))
        streaming(response)
        for (let word = 0; word < 8; word++) {
          if (!(await write(response, chunk({ content: "word " })))) return
          await sleep(random.int(0, 5))
        }
        response.end(chunk({}, "stop") + usageOf(5, 8) + done)
      }
      first.behave(slowly)
      const calls = full ? 400 : 80
      let answered = 0
      const one = async () => {
        const leave = new AbortController()
        const timer = setTimeout(() => leave.abort(), random.int(0, 80))
        try {
          const response = await send(gateway, { stream: random.int(0, 1) === 1 }, leave.signal)
          const text = await response.text()
          assert.strictEqual(response.status, 200, text)
          answered++
        } catch (error) {
          if (!leave.signal.aborted) throw error
        } finally {
          clearTimeout(timer)
        }
      }
      yield* Effect.promise(async () => {
        for (let at = 0; at < calls; at += 20) await Promise.all(Array.from({ length: 20 }, one))
      })
      const plane = yield* Plane
      const books = () =>
        Effect.runPromise(
          plane.sql(`select (select count(*)::int from ai_gateway_reservation where gateway_uid = '${gateway.id}') as held,
            (select coalesce(sum(reserved), 0)::float8 from ai_gateway_month where gateway_uid = '${gateway.id}') as reserved,
            (select coalesce(sum(spent), 0)::float8 from ai_gateway_month where gateway_uid = '${gateway.id}') as spent,
            count(*)::int as calls, coalesce(sum(cost), 0)::float8 as cost,
            count(*) filter (where status = 200)::int as finished,
            coalesce(sum(cost) filter (where status = 200), 0)::float8 as finished_cost,
            count(*) filter (where cost > 0)::int as charged
            from ai_gateway_request where gateway_uid = '${gateway.id}'`)
        )
      const row = yield* Effect.promise(() =>
        until("nothing is held", async () => {
          const [row] = await books()
          return row?.["held"] === 0 && row["reserved"] === 0 && row
        })
      )
      assert.strictEqual(row["spent"], row["cost"])
      // A call may have been finished when its client left.
      assert.isAtLeast(Number(row["finished"]), answered)
      // What the stand-in counted: 5 tokens of input and 8 of output of each answer that came to its end.
      assert.strictEqual(row["finished_cost"], Number(row["finished"]) * 21_000_000)
      const sent = first.seen.length + second.seen.length - before
      assert.isAtMost(sent, Number(row["charged"]))
      // A call that was cut off: a token for three bytes of the prompt, and of as many words as there are.
      const most = (Math.ceil(200 / 3) + 2 * Math.ceil((8 * 5) / 3)) * 1_000_000
      assert.isAtMost(Number(row["spent"]), Number(row["charged"]) * most)
      // The places are free, and the upstream is not taken for one that fails.
      first.behave(says(["fine"]))
      const last = yield* Effect.promise(() => send(gateway))
      assert.strictEqual(last.status, 200)
      return answered
    })
  )

  it.effect("are made up for once the store is back; an answer under way does not notice", () =>
    Effect.gen(function* () {
      const plane = yield* Plane
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      const store = { gone: false }
      const before = first.seen.length
      first.behave(async (_, response) => {
        streaming(response)
        await write(response, chunk({ content: "before " }))
        await until("the store has gone", () => store.gone)
        response.end(chunk({ content: "after" }) + chunk({}, "stop") + usageOf(5, 2) + done)
      })
      const text = yield* Effect.promise(async () => {
        const response = await send(gateway, { stream: true })
        const text = response.text()
        await until("the call runs", () => first.seen.length > before)
        // As a restart does, for every connection of this control plane.
        await Effect.runPromise(
          plane.sql(
            `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`
          )
        )
        store.gone = true
        return text
      })
      assert.include(text, "after")
      assert.include(text, "[DONE]")
      const { calls } = yield* settled(gateway, 1)
      assert.deepInclude(calls[0], { status: 200, inputTokens: 5, outputTokens: 2, estimated: false })
    })
  )
})
