/** `svc ai`, against a real control plane. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"

/** Each of these starts a dozen programs. */
const patience = 600_000

layer(signedIn(), { excludeTestServices: true, timeout: "2 minutes" })("svc ai", (it) => {
  it.effect(
    "makes gateways and keys, shows what was spent, and revokes",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const { call, sql } = yield* Plane
        const projects = "/v1/orgs/main/projects"
        yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
        const made = yield* svc([
          ...["ai", "create", "shop", "chat", "--budget", "12.5", "--model", "svc/fast", "--json"]
        ])
        assert.strictEqual(made.code, 0, made.stderr)
        const gateway = JSON.parse(made.stdout)
        assert.deepInclude(gateway, { name: "chat", allowedModels: ["svc/fast"], monthlyBudgetUsd: 12.5 })
        yield* sql(`insert into ai_gateway_month
          select org_id, uid, date_trunc('month', now() at time zone 'UTC')::date, 1250000000, 0, 3, 30, 15
          from resource where uid = '${gateway.id}'`)
        const [key, shown, usage, calls, listed, wrong] = yield* Effect.all(
          [
            svc(["ai", "keys", "create", "shop", "chat", "laptop"]),
            svc(["ai", "get", "shop", "chat"]),
            svc(["ai", "usage", "shop", "chat", "--json"]),
            svc(["ai", "requests", "shop", "chat"]),
            svc(["ai", "ls", "shop"]),
            svc(["ai", "create", "shop", "other", "--budget", "1", "--model", "gpt-4o"])
          ],
          { concurrency: 2 }
        )
        assert.match(key.stdout, /^svcgw_[0-9a-f]{40}\n$/)
        assert.match(shown.stdout, /\$1\.25 in 3 calls; \$11\.25 left/)
        assert.deepInclude(JSON.parse(usage.stdout), { requests: 3, spentUsd: 1.25, remainingUsd: 11.25 })
        assert.include(calls.stderr, "There were no calls")
        assert.match(listed.stdout, /chat .*svc\/fast .*\$1\.25 .*\$12\.50/)
        assert.strictEqual(wrong.code, 2, wrong.stderr)
        const changed = yield* svc(["ai", "update", "shop", "chat", "--budget", "20", "--json"])
        assert.strictEqual(JSON.parse(changed.stdout).monthlyBudgetUsd, 20, changed.stderr)
        const revoked = yield* svc(["ai", "keys", "revoke", "shop", "chat", "laptop", "--yes"])
        assert.strictEqual(revoked.code, 0, revoked.stderr)
        const [keys, again, token] = yield* Effect.all(
          [
            svc(["ai", "keys", "ls", "shop", "chat", "--json"]),
            svc(["ai", "keys", "revoke", "shop", "chat", "laptop", "--yes"]),
            svc(["environments", "rotate-app-token", "shop", "production"])
          ],
          { concurrency: 2 }
        )
        assert.isString(JSON.parse(keys.stdout)[0].revokedAt)
        assert.notStrictEqual(again.code, 0)
        assert.match(token.stdout, /^svcapp_[0-9a-f]{40}\n$/)
      }),
    patience
  )
})
