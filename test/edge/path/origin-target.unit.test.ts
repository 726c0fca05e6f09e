/** Where the requests to an environment with an origin go, by what name servers say. */
import { assert, expect, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { isLookedUp, originTarget } from "#src/edge/origin-target.ts"
import { Names, NameUnknown } from "#src/outbound/names.ts"

const known: Record<string, ReadonlyArray<string>> = {
  "app.example.com": ["2001:4860:4860::8888", "8.8.8.8", "8.8.4.4"],
  "inside.example.com": ["10.0.0.1", "169.254.169.254"]
}
const target = (origin: string, current?: Parameters<typeof originTarget>[1], names = known) =>
  originTarget(origin, current, []).pipe(
    Effect.provideService(Names, (name) => {
      const addresses = names[name]
      return addresses === undefined
        ? Effect.fail(new NameUnknown({ message: `${name} has no address` }))
        : Effect.succeed(addresses)
    })
  )

it.effect("nothing leads to this machine, a private network or a metadata service", () =>
  Effect.gen(function* () {
    for (const origin of [
      "http://127.0.0.1:3000",
      "http://localhost:3000",
      "http://[::1]:3000",
      "http://169.254.169.254",
      "http://[::ffff:169.254.169.254]",
      "https://inside.example.com",
      "http://inside.example.com."
    ]) {
      const found = yield* target(origin)
      expect(found.target, origin).toBeUndefined()
      expect(found.trouble, origin).toMatch(/SVC_OUTBOUND_ALLOW/)
    }
  })
)

it.effect("a name outside is an address, the name of its certificate and its host", () =>
  Effect.gen(function* () {
    expect((yield* target("https://app.example.com")).target).toEqual({
      address: "8.8.8.8",
      port: 443,
      tls: "app.example.com",
      host: "app.example.com"
    })
    expect((yield* target("http://app.example.com:8080")).target).toEqual({
      address: "8.8.8.8",
      port: 8080,
      host: "app.example.com:8080"
    })
    // No certificate would be checked by name.
    expect((yield* target("https://8.8.8.8")).trouble).toMatch(/by name/)
  })
)

it.effect("an address stays while it is the name's, and goes at once when the name moves inside", () =>
  Effect.gen(function* () {
    const origin = "https://app.example.com"
    const current = { address: "8.8.4.4", port: 443, tls: "app.example.com", host: "app.example.com" }
    expect((yield* target(origin, current)).target).toEqual(current)
    expect((yield* target(origin, current, { "app.example.com": ["8.8.8.8"] })).target?.address).toBe(
      "8.8.8.8"
    )
    expect(
      (yield* target(origin, current, { "app.example.com": ["169.254.169.254"] })).target
    ).toBeUndefined()
    // A name server that is away changes nothing, but for another origin.
    expect((yield* target(origin, current, {})).target).toEqual(current)
    expect((yield* target("https://other.example.com", current, {})).target).toBeUndefined()
  })
)

it("only names that others keep are looked up again", () => {
  for (const origin of ["https://app.example.com", "http://localhost.example.com:80"])
    assert.isTrue(isLookedUp(origin), origin)
  for (const origin of [undefined, "http://127.0.0.1:3000", "http://[::1]:3000", "http://localhost:3000"])
    assert.isFalse(isLookedUp(origin), origin)
  assert.isFalse(isLookedUp("http://app.localhost."))
})

it.effect("a host that no line of HAProxy's maps can hold is told", () =>
  Effect.gen(function* () {
    const found = yield* originTarget("http://my$app.example.com", undefined, [])
    assert.isUndefined(found.target)
    assert.include(found.trouble, "http://my$app.example.com")
  })
)
