import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import fc from "fast-check"
import { hostnameFault } from "#schemas/domain.ts"
import { AppConfig } from "#src/config.ts"
import { instructionsOf } from "#src/domains/destinations.ts"
import { makeRefusal, unicodeOf } from "#src/domains/names.ts"

const label = (length: number) => "a".repeat(length)

describe("host names", () => {
  const good = [
    "www.example.com",
    "example.com",
    "a.b.c.d.example.co.uk",
    "1.example.com",
    "me.github.io",
    "shop.localhost",
    "xn--bcher-kva.example",
    "xn--e1afmkfd.xn--p1ai",
    `${label(63)}.example.com`,
    // 253 characters.
    `${[label(60), label(60), label(60), label(58)].join(".")}.example.com`
  ]
  for (const name of good) {
    it(`may be ${name.slice(0, 70)}`, () => assert.isUndefined(hostnameFault(name)))
  }
  const bad: ReadonlyArray<readonly [name: string, says: RegExp]> = [
    ["", /at least two parts/],
    ["localhost", /at least two parts/],
    ["www.example.com.", /must not end in a dot/],
    ["*.example.com", /no wildcards/],
    ["192.0.2.1", /not an address/],
    ["1.2.3", /not an address/],
    ["[2001:db8::1]", /host name alone/],
    ["https://www.example.com", /host name alone/],
    ["www.example.com:8443", /host name alone/],
    ["user@example.com", /host name alone/],
    ["a_b.example.com", /underscore/],
    [`${label(64)}.example.com`, /at most 63 characters/],
    [`${[label(60), label(60), label(60), label(59)].join(".")}.example.com`, /at most 253 characters/],
    ["WWW.Example.com", /lower case: www\.example\.com/],
    ["bücher.example", /ASCII form: xn--bcher-kva\.example/],
    ["www.пример.рф", /ASCII form: www\.xn--e1afmkfd\.xn--p1ai/],
    ["ex\u200bample\u0000.com", /ASCII form$/],
    ["a b.com", /ASCII form$/],
    ["-a.example.com", /letters, digits and dashes/],
    ["a-.example.com", /letters, digits and dashes/],
    ["a..example.com", /letters, digits and dashes/],
    [".example.com", /letters, digits and dashes/],
    ["example.c0m", /top-level domain/],
    ["example.1", /top-level domain/],
    ["co.uk", /public suffix/],
    ["github.io", /public suffix/],
    ["s3.amazonaws.com", /public suffix/],
    ["foo.ck", /public suffix/]
  ]
  for (const [name, says] of bad) {
    it(`are not ${JSON.stringify(name).slice(0, 70)}`, () =>
      assert.match(hostnameFault(name) ?? "none", says))
  }

  it("that may be are always what the contract describes, whatever is asked for", () => {
    const part = fc.stringMatching(/^[a-zA-Z0-9_.*-]{0,66}$/)
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(part, { maxLength: 6 }).map((parts) => parts.join(".")),
          fc.string(),
          fc.domain()
        ),
        (name) => {
          if (hostnameFault(name) !== undefined) return
          assert.match(
            name,
            /^(?=.{3,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+([a-z]{2,63}|xn--[a-z0-9-]{1,59})$/
          )
        }
      ),
      { numRuns: 2_000 }
    )
  })

  it("in lower case that the web takes for domains may all be", () => {
    fc.assert(
      fc.property(fc.domain(), (name) => {
        const fault = hostnameFault(name.toLowerCase())
        assert.isTrue(fault === undefined || fault.includes("public suffix"), `${name}: ${fault}`)
      }),
      { numRuns: 500 }
    )
  })
})

describe("names that are the platform's own", () => {
  const refused = (hostname: string) =>
    Effect.runPromise(
      makeRefusal.pipe(
        Effect.map((refusal) => refusal(hostname)),
        Effect.provide(
          AppConfig.layerFrom({
            SVC_PUBLIC_URL: "https://console.svc.example",
            SVC_APPS_DOMAIN: "apps.example",
            SVC_MANAGED_HOST: "data.svc.test"
          })
        )
      )
    )
  for (const name of [
    "apps.example",
    "production--shop-abc123.apps.example",
    "a.b.apps.example",
    "console.svc.example",
    "x.console.svc.example",
    "data.svc.test"
  ]) {
    it(`${name} is refused`, async () => assert.match((await refused(name)) ?? "", /the platform's own/))
  }
  for (const name of ["svc.example", "myapps.example", "xconsole.svc.example", "xn--bcher-kva.example"]) {
    it(`${name} is not`, async () => assert.isUndefined(await refused(name)))
  }
  for (const name of ["xn--zzzzzz---.example", "xn--a.example", "xn--.example"]) {
    it(`${name} is refused, since it stands for nothing`, async () =>
      assert.match((await refused(name)) ?? "", /stands for nothing/))
  }
})

it("internationalized names are shown as people read them", () => {
  assert.strictEqual(unicodeOf("xn--bcher-kva.example"), "bücher.example")
  assert.isUndefined(unicodeOf("www.example.com"))
})

describe("instructions", () => {
  const destination = {
    target: "production--shop-abc.apps.test",
    appsDomain: "apps.test",
    addresses: ["192.0.2.1", "2001:db8::1"]
  }
  const claim = {
    uid: "u",
    age: 1,
    provedAge: undefined,
    lapsed: false,
    contested: false,
    challenge: "c0ffee"
  }
  it("name the CNAME record", () => {
    assert.strictEqual(
      instructionsOf("www.example.com", destination, claim),
      "Create the DNS record www.example.com CNAME production--shop-abc.apps.test."
    )
  })
  it("name ALIAS and the addresses at the top of a zone", () => {
    const told = instructionsOf("example.co.uk", destination, undefined)
    assert.match(
      told,
      /ALIAS .* names production--shop-abc\.apps\.test, .* create these records instead: A 192\.0\.2\.1, AAAA 2001:db8::1\.$/
    )
    assert.notMatch(instructionsOf("example.co.uk", { ...destination, addresses: [] }, undefined), /instead/)
  })
  it("ask for the challenge where another organization has used the name, and at the top of a zone", () => {
    const contested = { ...claim, contested: true }
    assert.match(
      instructionsOf("www.example.com", destination, contested),
      /_svc-challenge\.www\.example\.com TXT "c0ffee"/
    )
    assert.match(
      instructionsOf("example.com", destination, claim),
      /_svc-challenge\.example\.com TXT "c0ffee"/
    )
    for (const hostname of ["www.example.com", "example.com"])
      assert.notMatch(instructionsOf(hostname, destination, { ...contested, provedAge: 5 }), /TXT/)
  })
})
