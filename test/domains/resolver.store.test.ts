/** What name servers answer, and what they do not, by way of real sockets. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { RateLimits } from "#src/access/RateLimits.ts"
import { AppConfig } from "#src/config.ts"
import { Resolver } from "#src/domains/dns/Resolver.ts"
import { settings } from "#src/domains/settings.ts"
import { testDb } from "#test/setup/database.ts"
import { nameServer } from "#test/setup/dns.ts"
import { uuid } from "#test/setup/fixtures.ts"

const asking = (servers: string, variables: Readonly<Record<string, string>> = {}) =>
  Resolver.layer.pipe(
    Layer.provide(RateLimits.layer),
    Layer.provide(testDb()),
    Layer.provide(AppConfig.layerFrom({ SVC_DNS_SERVERS: servers, ...variables }))
  )

it.live("answers are told from failures, and hold no more than can be looked at", () =>
  Effect.gen(function* () {
    const { address, zone } = yield* nameServer
    zone.set("www.example.com", { cname: "Target.Example.NET" })
    zone.set("example.com", { a: ["192.0.2.1", "192.0.2.2"], txt: ["one", "two"] })
    zone.set("many.example.com", { a: Array.from({ length: 60 }, (_, index) => `192.0.2.${index}`) })
    zone.set("broken.example.com", { rcode: 2 })
    zone.set("closed.example.com", { rcode: 5 })
    zone.set("silent.example.com", { silent: true })
    yield* Effect.gen(function* () {
      const resolver = (yield* Resolver).of(null)
      assert.deepStrictEqual(yield* resolver.cname("www.example.com"), {
        records: ["target.example.net"],
        exists: true
      })
      assert.deepStrictEqual(yield* resolver.cname("example.com"), { records: [], exists: true })
      assert.deepStrictEqual(yield* resolver.cname("nothing.example.com"), { records: [], exists: false })
      assert.deepStrictEqual(yield* resolver.addresses("example.com"), {
        records: ["192.0.2.1", "192.0.2.2"],
        exists: true
      })
      assert.deepStrictEqual((yield* resolver.txt("example.com")).records, ["one", "two"])
      assert.lengthOf((yield* resolver.addresses("many.example.com")).records, 50)
      const why = (name: string) => Effect.map(Effect.flip(resolver.cname(name)), ({ message }) => message)
      assert.match(yield* why("broken.example.com"), /CNAME records of broken\.example\.com .* \(SERVFAIL\)/)
      assert.match(yield* why("closed.example.com"), /refused/)
      assert.match(yield* why("silent.example.com"), /in time/)
    }).pipe(Effect.provide(asking(address)))
  }).pipe(Effect.scoped)
)

it.live("one organization's questions end where its share does, and nobody else's", () =>
  Effect.gen(function* () {
    const { address, zone, asked } = yield* nameServer
    zone.set("www.example.com", { cname: "target.example.net" })
    yield* Effect.gen(function* () {
      const resolver = yield* Resolver
      const ask = (orgId: string | null) => resolver.of(orgId).cname("www.example.com")
      const [one, other] = [uuid(), uuid()]
      const tries = yield* Effect.all(
        Array.from({ length: 200 }, () => Effect.result(ask(one))),
        { concurrency: 20 }
      )
      const told = tries.flatMap((tried) => (tried._tag === "Failure" ? [tried.failure.message] : []))
      // Some come back meanwhile.
      assert.isAtLeast(told.length, 100)
      assert.match(told[0] ?? "", /10 questions a minute for one organization/)
      assert.strictEqual(asked(), 200 - told.length)
      for (const orgId of [other, null]) assert.isTrue((yield* ask(orgId)).exists)
    }).pipe(Effect.provide(asking(address, { SVC_ORG_DNS_QUESTIONS: "10" })))
  }).pipe(Effect.scoped)
)

it.live("name servers that are set to nonsense stop the start", () =>
  Effect.gen(function* () {
    const of = (value: string) =>
      Effect.result(Effect.provide(settings, AppConfig.layerFrom({ SVC_DNS_SERVERS: value })))
    for (const good of [
      "192.0.2.53",
      "192.0.2.53:5353",
      "2001:db8::53",
      "[2001:db8::53]:5353",
      "192.0.2.53, 192.0.2.54"
    ])
      assert.strictEqual((yield* of(good))._tag, "Success", good)
    for (const bad of [
      "ns.example.com",
      "192.0.2.53:0",
      "192.0.2.53:70000",
      "192.0.2.999",
      "[2001:db8::53",
      "192.0.2.53:53:53"
    ])
      assert.strictEqual((yield* of(bad))._tag, "Failure", bad)
  })
)
