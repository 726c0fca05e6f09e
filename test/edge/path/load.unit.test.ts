/** Requests under way to the instances of apps, from what HAProxy counts to what is told. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { averaged, countsOf } from "#src/edge/agent/load.ts"
import { Routes } from "#src/edge/agent/Routes.ts"
import type { SiteRow } from "#src/edge/agent/rows.ts"

const site = (environmentUid: string, more: Partial<SiteRow> = {}): SiteRow => ({
  orgId: "org",
  environmentUid,
  target: null,
  asleep: false,
  access: "public",
  ...more
})
const at = (address: string) => ({ address, port: 8_080 })

describe("an app with several instances", () => {
  it.effect("is a line with all of them, another one and one that sleeps are not", () =>
    Effect.gen(function* () {
      const routes = yield* Routes
      routes.replaceSites("all", [
        site("one", { target: at("10.0.0.1") }),
        site("alone", { target: { ...at("10.0.0.1"), others: [] } }),
        site("two", { target: { ...at("10.0.0.1"), others: [at("10.0.0.2")] } }),
        site("asleep", { target: { ...at("10.0.0.1"), others: [at("10.0.0.2")] }, asleep: true })
      ])
      assert.deepStrictEqual(Object.fromEntries(routes.siteLines()), {
        one: "public|10.0.0.1|8080||",
        alone: "public|10.0.0.1|8080|||1|10.0.0.1:8080",
        two: "public|10.0.0.1|8080|||2|10.0.0.1:8080~10.0.0.2:8080",
        asleep: "public||||"
      })
    }).pipe(Effect.provide(Routes.layer))
  )

  it("has the requests of its instances, averaged, until there are none", () => {
    const counts = countsOf(`# table: instances, type: string, size:102400, used:3
0x5581: key=10.0.0.1:8080 use=4 exp=0 shard=0 conn_cur=4
0x5582: key=10.0.0.2:8080 use=6 exp=0 shard=0 conn_cur=6
0x5583: key=10.0.0.9:8080 use=0 exp=5999 shard=0 conn_cur=7

`)
    assert.deepStrictEqual([...counts.values()], [4, 6, 7])
    const sites = [
      site("two", { target: { ...at("10.0.0.1"), others: [at("10.0.0.2")] } }),
      site("another", { target: at("10.0.0.9") })
    ]
    let loads = averaged(new Map(), sites, counts)
    assert.deepStrictEqual([...loads.keys()], ["two"])
    assert.closeTo(loads.get("two")?.requests ?? 0, 3, 0.001)
    for (let round = 0; round < 30; round++) loads = averaged(loads, sites, counts)
    assert.closeTo(loads.get("two")?.requests ?? 0, 10, 0.01)
    let rounds = 0
    for (; (loads.get("two")?.requests ?? 0) > 0; rounds++) loads = averaged(loads, sites, new Map())
    // That there are none is told once.
    assert.strictEqual(loads.get("two")?.requests, 0)
    assert.isAbove(rounds, 5)
    assert.strictEqual(averaged(loads, sites, new Map()).size, 0)
    assert.strictEqual(averaged(new Map(), sites, new Map()).size, 0)
  })
})
