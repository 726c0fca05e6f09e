/** Webhooks from the command line. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "./control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "3 minutes" })("webhooks", (it) => {
  it.effect("are made, looked at, tried, changed and deleted", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      // Nothing listens there.
      const url = "https://127.0.0.1:9/hook"
      const made = yield* svc([
        "webhooks",
        "create",
        url,
        "--event",
        "budget.exceeded",
        "--event",
        "deploy.failed"
      ])
      assert.strictEqual(made.code, 0, made.stderr)
      assert.match(made.stdout, /^whsec_[0-9a-f]{40}\n$/)
      const [twice, plain, unknown] = yield* Effect.all(
        [
          svc(["webhooks", "create", url]),
          svc(["webhooks", "create", "http://example.com/"]),
          svc(["webhooks", "create", "https://example.com/", "--event", "nonsense"])
        ],
        { concurrency: 3 }
      )
      assert.deepStrictEqual([twice.code, plain.code, unknown.code], [6, 2, 2], plain.stderr)
      const listed = yield* svc(["webhooks", "ls", "--json"])
      const [hook, ...others] = JSON.parse(listed.stdout)
      assert.lengthOf(others, 0)
      assert.deepInclude(hook, { url, events: ["deploy.failed", "budget.exceeded"], enabled: true })

      const tested = yield* svc(["webhooks", "test", url])
      assert.deepStrictEqual([tested.code, tested.stdout], [1, ""])
      assert.include(tested.stderr, "ECONNREFUSED")
      const deliveries = yield* svc(["webhooks", "deliveries", hook.id, "--json"])
      const [delivery] = JSON.parse(deliveries.stdout)
      assert.strictEqual(delivery.event.type, "webhook.test")
      const [again, missing, rotated, updated] = yield* Effect.all([
        svc(["webhooks", "redeliver", hook.id, delivery.id]),
        svc(["webhooks", "redeliver", hook.id, hook.id]),
        svc(["webhooks", "rotate-secret", hook.id, "--overlap", "0"]),
        svc(["webhooks", "update", hook.id, "--no-enable", "--event", "budget.alert"])
      ])
      assert.deepStrictEqual([again.code, missing.code], [0, 5], again.stderr)
      assert.match(rotated.stdout, /^whsec_[0-9a-f]{40}\n$/)
      assert.notStrictEqual(rotated.stdout, made.stdout)
      assert.include(updated.stderr, "budget.alert): disabled")
      const [nothing, table] = yield* Effect.all([
        svc(["webhooks", "update", hook.id]),
        svc(["webhooks", "ls"])
      ])
      assert.strictEqual(nothing.code, 2)
      assert.match(table.stdout, /budget\.alert +disabled/)
      const refused = yield* svc(["webhooks", "rm", hook.id])
      assert.strictEqual(refused.code, 2)
      const gone = yield* svc(["webhooks", "rm", hook.id, "--yes"])
      assert.strictEqual(gone.code, 0, gone.stderr)
      assert.strictEqual((yield* svc(["webhooks", "test", hook.id])).code, 5)
    })
  )
})
