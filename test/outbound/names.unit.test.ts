import * as fs from "node:fs"
import * as net from "node:net"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Names, ownAddresses } from "#src/outbound/names.ts"

const resolve = (name: string) => Effect.flatMap(Names, (names) => names(name))

/** A name of the machine's own file that no name server knows, with one of its addresses. */
const inFile = fs
  .readFileSync("/etc/hosts", "utf8")
  .split("\n")
  .map((line) => line.replace(/#.*/, "").trim().split(/\s+/))
  .flatMap(([address = "", ...names]) => names.map((name) => [name, address] as const))
  .find(([name, address]) => net.isIPv4(address) && !name.includes("localhost") && !name.includes("."))

it.live.skipIf(inFile === undefined)("names of the machine's own file are found", () =>
  Effect.gen(function* () {
    const [name, address] = inFile ?? ["", ""]
    assert.include(yield* resolve(name), address)
  })
)

it.live("a name that nobody knows has no address, which is said with its name", () =>
  Effect.gen(function* () {
    const error = yield* Effect.flip(resolve("nothing.invalid"))
    assert.strictEqual(error._tag, "NameUnknown")
    assert.include(error.message, "nothing.invalid")
  })
)

it("localhost is this machine, and what only looks like it is not", () => {
  for (const name of ["localhost", "app.localhost"])
    assert.deepStrictEqual(ownAddresses(name), ["127.0.0.1", "::1"])
  for (const name of ["localhost.example.com", "mylocalhost"]) assert.isUndefined(ownAddresses(name))
})
