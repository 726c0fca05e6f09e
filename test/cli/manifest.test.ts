/** `svc plan`, `svc apply`, `svc export`, `svc manifest` against a real control plane. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { manifestJsonSchema } from "#src/manifest/json-schema.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { serversNaming } from "#test/setup/processes.ts"
import { Operator, signedIn } from "./control-plane.ts"

const shop = (cache: string, more = "") => `version: 1
organization: main
projects:
  - name: Shop
    slug: shop
    runtimeClass: always-on
    env: { GREETING: hello, TOKEN: canary-5f1c }
    caches:
      - { name: pages, region: local, persistence: none, ${cache} }${more}
`
const first = shop("evictionPolicy: allkeys-lru")
const second = shop(
  "evictionPolicy: noeviction",
  "\n      - { name: extra, region: local, persistence: none }"
)

layer(signedIn(), { excludeTestServices: true, timeout: "2 minutes" })("manifests", (it) => {
  it.effect("are planned, applied, exported and found unchanged", () =>
    Effect.gen(function* () {
      const { svc, manifest } = yield* Operator
      const file = manifest(first)
      const plan = yield* svc(["plan", "-f", file, "--detailed-exitcode"])
      assert.strictEqual(plan.code, 2)
      assert.strictEqual(
        plan.stdout,
        `+ Project/shop
    + /name "Shop"
    + /runtimeClass "always-on"
+ shop/production/EnvVariables/variables
    + /variables {"GREETING":"****","TOKEN":"****"}
    + /forBuilds []
+ shop/production/Cache/pages
    + /sku "cache-n1"
    + /region "local"
    + /persistence "none"
    + /evictionPolicy "allkeys-lru"

Plan: 3 to create, 0 to update, 0 to replace, 0 to delete.
`
      )
      assert.match(plan.stderr, /^Apply it as it is with: svc apply --plan \S+\n$/)

      const applied = yield* svc(["apply", "-f", file])
      assert.strictEqual(applied.code, 0, applied.stderr)
      assert.strictEqual(applied.stdout, "")
      assert.match(applied.stderr, /\+ shop\/production\/Cache\/pages/)
      assert.match(applied.stderr, /^ *\d+\.\ds {2}shop\/production\/Cache\/pages {2}ready$/m)
      assert.notInclude(plan.stdout + applied.stderr, "canary-5f1c")

      const again = yield* svc(["plan", "-f", file, "--detailed-exitcode"])
      assert.deepStrictEqual([again.code, again.stdout, again.stderr], [0, "Nothing to change.\n", ""])
      const schema = yield* svc(["manifest", "schema"])
      assert.deepStrictEqual(JSON.parse(schema.stdout), manifestJsonSchema())
      const exported = yield* svc(["export"])
      assert.match(exported.stdout, /^version: 1\norganization: main\n/)
      assert.notInclude(exported.stdout, "canary-5f1c")
      const [round, asJson] = yield* Effect.all(
        [
          svc(["plan", "-f", "-", "--detailed-exitcode"], { stdin: exported.stdout }),
          svc(["export", "--json"])
        ],
        { concurrency: 2 }
      )
      assert.deepStrictEqual([round.code, round.stdout], [0, "Nothing to change.\n"])
      assert.strictEqual(JSON.parse(asJson.stdout).projects[0].slug, "shop")
    })
  )

  it.effect("a reviewed plan is applied as it was, in JSON for programs; a stale one is refused with 6", () =>
    Effect.gen(function* () {
      const { svc, manifest } = yield* Operator
      const file = manifest(second)
      const human = yield* svc(["plan", "-f", file])
      assert.strictEqual(human.code, 0)
      assert.strictEqual(
        human.stdout,
        `+ shop/production/Cache/extra
    + /sku "cache-n1"
    + /region "local"
    + /persistence "none"
    + /evictionPolicy "allkeys-lru"
~ shop/production/Cache/pages
    ~ /evictionPolicy "allkeys-lru" -> "noeviction"

Plan: 1 to create, 1 to update, 0 to replace, 0 to delete.
`
      )
      const planned = JSON.parse((yield* svc(["plan", "-f", file, "--json"])).stdout)
      assert.hasAllKeys(planned, [
        "planId",
        "organization",
        "baseRevision",
        "createdAt",
        "expiresAt",
        "summary",
        "changes",
        "drift",
        "blockers",
        "warnings"
      ])
      const applied = yield* svc(["apply", "--plan", planned.planId, "--json"])
      assert.strictEqual(applied.code, 0, applied.stderr)
      const answer = JSON.parse(applied.stdout)
      assert.hasAllKeys(answer, ["changes", "revision", "resources"])
      assert.match(applied.stderr, /Cache\/extra {2}ready/)
      const used = yield* svc(["apply", "--plan", planned.planId])
      assert.strictEqual(used.code, 5)
      const [, older = ""] = /--plan (\S+)/.exec(human.stderr) ?? []
      const stale = yield* svc(["apply", "--plan", older])
      assert.strictEqual(stale.code, 6, stale.stderr)
      assert.strictEqual(stale.stdout, "")
      const shown = yield* svc(["plan", "--plan", older])
      assert.deepStrictEqual([shown.code, shown.stdout], [0, human.stdout])
      assert.match(shown.stderr, /cannot be applied any more.*Cache\/extra/)
      const nothing = yield* svc(["apply", "-f", file, "--json"])
      assert.deepStrictEqual([nothing.code, JSON.parse(nothing.stdout)], [0, { changes: [], resources: [] }])
    })
  )

  it.effect(
    "what is wrong is named with its line; nothing changes, and 2 never means an error in a plan",
    () =>
      Effect.gen(function* () {
        const { svc, manifest } = yield* Operator
        const file = manifest(first.replace("allkeys-lru", "sometimes"))
        const [wrong, detailed, missing, blocked] = yield* Effect.all(
          [
            svc(["plan", "-f", file]),
            svc(["plan", "-f", file, "--detailed-exitcode"]),
            svc(["plan", "-f", "no-such-file.yaml", "--detailed-exitcode"]),
            svc([
              "apply",
              "-f",
              manifest(first.replace("runtimeClass", "realtime: [{ name: jobs }]\n    runtimeClass"))
            ])
          ],
          { concurrency: 2 }
        )
        assert.strictEqual(wrong.code, 1)
        assert.match(wrong.stderr, /9:\d+ +\/projects\/0\/caches\/0\/evictionPolicy/)
        assert.strictEqual(detailed.code, 1)
        assert.strictEqual(missing.code, 1)
        assert.include(missing.stderr, "no-such-file.yaml")
        assert.strictEqual(blocked.code, 1, blocked.stderr)
      })
  )

  it.effect("what a manifest no longer names is destroyed only when somebody says so, and is gone then", () =>
    Effect.gen(function* () {
      const { svc, manifest } = yield* Operator
      const { dataDir } = yield* Plane
      const file = manifest(first)
      const before = serversNaming(`${dataDir}/caches`).length
      const kept = yield* svc(["apply", "-f", file])
      assert.strictEqual(kept.code, 0, kept.stderr)
      const rest = yield* svc(["plan", "-f", file, "--detailed-exitcode"])
      assert.strictEqual(rest.code, 0)
      assert.strictEqual(
        rest.stdout,
        "  shop/production/Cache/extra\n1 not in the manifest, kept (use --prune to delete)\nNothing to change.\n"
      )
      const asked = yield* svc(["apply", "-f", file, "--prune"])
      assert.include(asked.stderr, "This destroys with all data: shop/production/Cache/extra.")
      assert.strictEqual(asked.code, 2)
      assert.include(asked.stderr, "Repeat with --yes")
      assert.strictEqual(serversNaming(`${dataDir}/caches`).length, before)
      const pruned = yield* svc(["apply", "-f", file, "--prune", "--yes"])
      assert.strictEqual(pruned.code, 0, pruned.stderr)
      assert.match(pruned.stderr, /- shop\/production\/Cache\/extra {2}\[destructive\]/)
      assert.match(pruned.stderr, /Cache\/extra {2}gone/)
      assert.strictEqual(serversNaming(`${dataDir}/caches`).length, before - 1)
    })
  )
})
