import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { pointsHere } from "#src/domains/dns/points-here.ts"
import { type DnsResolver, DnsUnknown } from "#src/domains/dns/Resolver.ts"

type Zone = Readonly<
  Record<string, { readonly cname?: ReadonlyArray<string>; readonly a?: ReadonlyArray<string> } | "fails">
>

const asked: Array<string> = []
const resolverOf = (zone: Zone): DnsResolver => {
  const look = <A>(
    type: string,
    name: string,
    records: (entry: Exclude<Zone[string], "fails">) => ReadonlyArray<A>
  ) =>
    Effect.suspend(() => {
      asked.push(`${type} ${name}`)
      const entry = zone[name]
      return entry === "fails"
        ? Effect.fail(new DnsUnknown({ message: `${name}: SERVFAIL` }))
        : Effect.succeed({ records: entry === undefined ? [] : records(entry), exists: entry !== undefined })
    })
  return {
    cname: (name) => look("CNAME", name, ({ cname = [] }) => cname),
    addresses: (name) => look("A", name, ({ a = [] }) => a),
    txt: (name) => look("TXT", name, () => []),
    caa: (name) => look("CAA", name, () => [])
  }
}

const target = "production--shop-abc123.apps.test"
const look = (
  zone: Zone,
  hostname = "www.example.com",
  addresses: ReadonlyArray<string> = ["192.0.2.1", "2001:db8::1"]
) => pointsHere(resolverOf(zone), hostname, { target, appsDomain: "apps.test", addresses })

describe("where a host name leads", () => {
  const here: ReadonlyArray<readonly [what: string, zone: Zone, by: string]> = [
    ["one CNAME record", { "www.example.com": { cname: [target] } }, "cname"],
    [
      "one in upper case with a dot at its end",
      { "www.example.com": { cname: [`${target.toUpperCase()}.`] } },
      "cname"
    ],
    [
      "several CNAME records, one after another",
      {
        "www.example.com": { cname: ["a.example.net"] },
        "a.example.net": { cname: ["b.example.net"] },
        "b.example.net": { cname: [target] }
      },
      "cname"
    ],
    ["addresses of the edge", { "www.example.com": { a: ["192.0.2.1"] } }, "addresses"],
    [
      "an IPv6 address in another spelling",
      { "www.example.com": { a: ["192.0.2.1", "2001:DB8:0::1"] } },
      "addresses"
    ],
    [
      "a CNAME record to a name with the edge's addresses",
      { "www.example.com": { cname: ["example.com"] }, "example.com": { a: ["192.0.2.1"] } },
      "addresses"
    ]
  ]
  for (const [what, zone, by] of here) {
    it.effect(`is here: ${what}`, () =>
      Effect.map(look(zone), (direction) => assert.deepStrictEqual<unknown>(direction, { _tag: "Here", by }))
    )
  }

  it.effect("is here when it has the addresses of the managed name, where no others are set", () =>
    Effect.gen(function* () {
      const zone: Zone = { "example.com": { a: ["192.0.2.7"] }, [target]: { a: ["192.0.2.7", "192.0.2.8"] } }
      assert.strictEqual((yield* look(zone, "example.com", []))._tag, "Here")
    })
  )

  const chain = Object.fromEntries(
    Array.from({ length: 20 }, (_, index) => [
      index === 0 ? "www.example.com" : `n${index}.example.net`,
      { cname: [`n${index + 1}.example.net`] }
    ])
  )
  const elsewhere: ReadonlyArray<readonly [what: string, zone: Zone, says: RegExp]> = [
    ["nothing", {}, /not in DNS yet \(NXDOMAIN\)/],
    ["a name with other records only", { "www.example.com": {} }, /neither a CNAME record nor an address/],
    [
      "another address",
      { "www.example.com": { a: ["198.51.100.1"] } },
      /the address 198\.51\.100\.1, which is not/
    ],
    [
      "one stray AAAA record",
      { "www.example.com": { a: ["192.0.2.1", "2001:db8::bad"] } },
      /Remove these A or AAAA records/
    ],
    [
      "a CNAME record to nowhere",
      { "www.example.com": { cname: ["old.example.net"] } },
      /old\.example\.net, which has no address; it has to lead to production--shop/
    ],
    [
      "the address of another environment, although its addresses are the edge's",
      {
        "www.example.com": { cname: ["production--blog-fff000.apps.test"] },
        "production--blog-fff000.apps.test": { a: ["192.0.2.1"] }
      },
      /the address of another environment/
    ],
    [
      "two CNAME records",
      { "www.example.com": { cname: ["a.example.net", "b.example.net"] } },
      /more than one CNAME/
    ],
    [
      "a circle",
      { "www.example.com": { cname: ["a.example.net"] }, "a.example.net": { cname: ["www.example.com"] } },
      /circle/
    ],
    ["an alias of itself", { "www.example.com": { cname: ["www.example.com"] } }, /circle/],
    ["a chain without an end", chain, /more than 8 times/],
    [
      "a name that is made of control characters",
      { "www.example.com": { cname: ["\u001b[31mred\n.test"] } },
      /leads to \?\?31mred\?\.test/
    ]
  ]
  for (const [what, zone, says] of elsewhere) {
    it.effect(`is elsewhere: ${what}`, () =>
      Effect.map(look(zone), (direction) => {
        if (direction._tag !== "Elsewhere") return assert.fail(direction._tag)
        assert.match(direction.message, says)
      })
    )
  }

  it.effect("asks a bounded number of questions", () =>
    Effect.gen(function* () {
      asked.length = 0
      yield* look(chain)
      assert.isAtMost(asked.length, 10)
    })
  )

  for (const [what, zone] of [
    ["at the first name", { "www.example.com": "fails" }],
    ["on the way", { "www.example.com": { cname: ["a.example.net"] }, "a.example.net": "fails" }]
  ] satisfies ReadonlyArray<readonly [string, Zone]>) {
    it.effect(`is unknown when a name server fails ${what}`, () =>
      Effect.map(Effect.flip(look(zone)), (error) => assert.strictEqual(error._tag, "DnsUnknown"))
    )
  }
})
