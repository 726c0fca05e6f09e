/** A control plane as a program of its own, called with curl, and killed while it streams. */
import { spawn } from "node:child_process"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { sweep } from "#src/ai-gateways/sweep.ts"
import { Db } from "#src/store/Db.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { endless, says, standIn } from "./upstream.ts"

/** `curl -N` of a stream; what it printed, once it ends. */
const curl = (url: string, key: string) => {
  const child = spawn(
    "curl",
    [
      "-sS",
      "-N",
      url,
      "-H",
      `authorization: Bearer ${key}`,
      "-H",
      "content-type: application/json",
      "-d"
    ].concat(
      JSON.stringify({
        model: "svc/fast",
        stream: true,
        max_tokens: 10,
        messages: [{ role: "user", content: "hello" }]
      })
    ),
    { stdio: ["ignore", "pipe", "ignore"] }
  )
  let text = ""
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    text += piece
  })
  const ended = new Promise<string>((resolve) => child.once("close", () => resolve(text)))
  return { ended, text: () => text }
}

campaign(
  it.live,
  "ai-kills",
  "a process that is killed while it streams leaves nothing reserved once its lease has ended, and its calls are charged",
  { roundMs: 300_000 },
  Effect.fnUntraced(function* ({ seed, full }) {
    const random = new Seeded(seed)
    const { base, store, planes } = yield* planesOnSharedServer
    const provider = yield* standIn
    const upstream = {
      name: "provider",
      dialect: "openai",
      address: provider.url,
      model: "real",
      key: "none",
      prices: { input: 1_000, output: 1_000 }
    }
    const sql = yield* Effect.acquireRelease(
      Effect.sync(() => postgres(store.url, { max: 1, onnotice: () => {} })),
      (client) => Effect.promise(() => client.end({ timeout: 1 }))
    )
    yield* Effect.promise(async () => {
      const plane = await makePlane(base, store.url, {
        SVC_AI_UPSTREAMS: JSON.stringify({ "svc/fast": [upstream] })
      })
      planes.push(plane)
      await plane.start()
      const chat = `${plane.url}/v1/runtime/ai/chat/chat/completions`
      await plane.call("POST", "/v1/orgs/main/projects", { name: "Shop", slug: "shop" })
      const gateways = "/v1/orgs/main/projects/shop/ai-gateways"
      const gateway = await plane.call("POST", gateways, {
        name: "chat",
        allowedModels: ["svc/fast"],
        monthlyBudgetUsd: 1_000
      })
      const key = await plane.call("POST", `${gateways}/${gateway.body.id}/keys`, { name: "curl" })
      const call = () => curl(chat, key.body.secret)

      provider.behave(says(["Hello ", "curl"]))
      const text = await call().ended
      assert.match(text, /^data: \{"id":"chatcmpl-/)
      assert.include(text, '"content":"curl"')
      assert.isTrue(text.endsWith("data: [DONE]\n\n"))

      provider.behave(endless())
      const calls = 5
      const kills = full ? 20 : 1
      for (let kill = 0; kill < kills; kill++) {
        const running = Array.from({ length: calls }, call)
        await until("they stream", () => running.every((one) => one.text().includes("word")))
        await sleep(random.int(0, 50))
        await plane.kill("SIGKILL")
        for (const one of running) assert.notInclude(await one.ended, "[DONE]")
        await plane.start()
      }
      await until("the upstream is left", () => provider.seen.slice(1).every(({ aborted }) => aborted))
      const usage = async () => (await plane.call("GET", `${gateways}/${gateway.body.id}/usage`)).body
      assert.isAbove((await usage()).reservedUsd, 0)
      // Their time passes. The process that runs settles them when it has had contact with the store for a minute; a
      // short round does not wait for that minute.
      await sql`update ai_gateway_holder set alive_until = alive_until - interval '1 hour'`
      await sql`update ai_gateway_reservation set reserved_at = reserved_at - interval '5 minutes'`
      const held = (await usage()).reservedUsd
      if (!full) {
        const db = Db.layer({ url: Redacted.make(store.url) })
        await Effect.runPromise(Effect.provide(sweep, db))
      }
      const after = await until("nothing is held", async () => {
        const now = await usage()
        return now.reservedUsd === 0 && now
      })
      assert.strictEqual(after.requests, 1 + kills * calls)
      assert.isAtLeast(after.spentUsd, held)
    })
  })
)
