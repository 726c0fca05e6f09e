/** `svc access` and `svc open`, against a real control plane. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "2 minutes" })("svc access", (it) => {
  it.effect(
    "says who may see what, invites, and opens addresses",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const { call } = yield* Plane
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        const open = yield* svc(["access", "get", "shop"])
        assert.match(open.stdout, /Mode +public/)
        assert.match(open.stdout, /production +everybody/)
        const nothing = yield* svc(["access", "set", "shop"])
        assert.strictEqual(nothing.code, 2)
        for (const environment of ["staging", "=public", "staging=nobody", "Staging=public"]) {
          const wrong = yield* svc(["access", "set", "shop", "-e", environment])
          assert.strictEqual(wrong.code, 2, environment)
        }
        const set = yield* svc([
          ...["access", "set", "shop", "--preview", "organization", "-e", "production=invite_only", "--json"]
        ])
        assert.strictEqual(set.code, 0, set.stderr)
        assert.deepInclude(JSON.parse(set.stdout), {
          mode: "public",
          effective: { preview: "organization", production: "invite_only" }
        })
        // What is not named stays; an empty mode takes one back.
        const again = yield* svc(["access", "set", "shop", "--mode", "authenticated", "-e", "production="])
        assert.match(again.stdout, /preview +members of the organization/)
        assert.match(again.stdout, /production +whoever has an account/)

        assert.include((yield* svc(["access", "invited", "shop"])).stderr, "Nobody is invited")
        const invited = yield* svc(["access", "invite", "shop", "Ada@Example.test"])
        assert.include(invited.stderr, "ada@example.test may see the environments of shop")
        assert.include((yield* svc(["access", "invited", "shop"])).stdout, "ada@example.test")
        const gone = yield* svc(["access", "uninvite", "shop", "ADA@example.test"])
        assert.strictEqual(gone.code, 0, gone.stderr)
        assert.strictEqual((yield* svc(["access", "uninvite", "shop", "ada@example.test"])).code, 5)

        const unset = yield* svc(["access", "unset", "shop"])
        assert.strictEqual(unset.code, 2)
        assert.strictEqual((yield* svc(["access", "unset", "shop", "--yes"])).code, 0)
        assert.match((yield* svc(["access", "get", "shop"])).stdout, /preview +everybody/)

        const address = yield* svc(["open", "shop", "--no-browser"])
        assert.match(address.stdout, /^https:\/\/production--shop-[0-9a-f]{6}\.apps\.localhost:8443\n$/)
        const asJson = yield* svc(["open", "shop", "-e", "preview", "--json"])
        assert.include(JSON.parse(asJson.stdout).address, "https://preview--shop-")
        assert.strictEqual((yield* svc(["open", "shop", "-e", "nowhere"])).code, 5)
      }),
    600_000
  )
})
