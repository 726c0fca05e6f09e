import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type CaaRecord, DnsUnknown } from "#src/domains/dns/Resolver.ts"
import { caaRefusal } from "#src/edge/certificates/caa.ts"

const record = (tag: string, value: string, critical = false): CaaRecord => ({ tag, value, critical })
const identities = ["pki.example", "old.pki.example"]

const refusal = (
  name: string,
  records: Readonly<Record<string, ReadonlyArray<CaaRecord> | "silence">>,
  asked: Array<string> = [],
  names: ReadonlyArray<string> = identities
) =>
  caaRefusal(
    {
      caa: (owner) => {
        asked.push(owner)
        const found = records[owner] ?? []
        return found === "silence"
          ? Effect.fail(new DnsUnknown({ message: "SERVFAIL" }))
          : Effect.succeed({ records: found, exists: true })
      }
    },
    name,
    names
  )

it.effect("without records, nobody is against it, up to the top-level domain", () =>
  Effect.gen(function* () {
    const asked: Array<string> = []
    assert.isUndefined(yield* refusal("a.b.example.com", {}, asked))
    assert.deepStrictEqual(asked, ["a.b.example.com", "b.example.com", "example.com", "com"])
  })
)

it.effect("the nearest name with records decides, whatever stands above it", () =>
  Effect.gen(function* () {
    const near = {
      "b.example.com": [record("issue", "PKI.example; account=1")],
      "example.com": [record("issue", ";")]
    }
    assert.isUndefined(yield* refusal("a.b.example.com", near))
    assert.strictEqual(
      yield* refusal("c.example.com", near),
      'The CAA records of example.com let nobody issue certificates; add this one: example.com. CAA 0 issue "pki.example"'
    )
  })
)

it.effect("any of the authority's names will do, and others are named", () =>
  Effect.gen(function* () {
    assert.isUndefined(yield* refusal("example.com", { "example.com": [record("issue", "old.pki.example")] }))
    const others = [record("issue", "one.example"), record("issue", "two.example")]
    assert.include(
      yield* refusal("example.com", { "example.com": others }),
      "let only one.example, two.example issue"
    )
  })
)

it.effect("wildcards go by issuewild where there is one, hosts never", () =>
  Effect.gen(function* () {
    const records = { "example.com": [record("issue", "pki.example"), record("issuewild", "one.example")] }
    assert.include(
      yield* refusal("*.example.com", records),
      'wildcards; add this one: example.com. CAA 0 issuewild "pki.example"'
    )
    assert.isUndefined(yield* refusal("www.example.com", records))
    assert.isUndefined(yield* refusal("*.example.com", { "example.com": [record("issue", "pki.example")] }))
  })
)

it.effect("a critical tag that nobody knows is a refusal, any other is none", () =>
  Effect.gen(function* () {
    assert.include(yield* refusal("example.com", { "example.com": [record("new", "x", true)] }), '"new"')
    assert.isUndefined(yield* refusal("example.com", { "example.com": [record("new", "x")] }))
    assert.isUndefined(
      yield* refusal("example.com", { "example.com": [record("iodef", "mailto:a@b.c", true)] })
    )
  })
)

it.effect("what cannot be asked is left to the authority, and so is one that does not say its names", () =>
  Effect.gen(function* () {
    assert.isUndefined(
      yield* refusal("www.example.com", {
        "www.example.com": "silence",
        "example.com": [record("issue", ";")]
      })
    )
    assert.isUndefined(yield* refusal("example.com", { "example.com": [record("issue", ";")] }, [], []))
  })
)
