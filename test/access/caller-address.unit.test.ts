import { assert, it } from "@effect/vitest"
import { callerAddress } from "#src/access/caller-address.ts"
import { networkOf } from "#src/infra/containers/network.ts"

const range = "10.77.0.0/16"

it("what proxies wrote counts as far as there are proxies", () => {
  const written = "198.51.100.1, 203.0.113.7, 10.0.0.2"
  assert.strictEqual(callerAddress("127.0.0.1", written, 0, range), "127.0.0.1")
  assert.strictEqual(callerAddress("127.0.0.1", written, 1, range), "10.0.0.2")
  assert.strictEqual(callerAddress("127.0.0.1", written, 2, range), "203.0.113.7")
  assert.strictEqual(callerAddress("127.0.0.1", "nobody", 1, range), "127.0.0.1")
  assert.strictEqual(callerAddress("127.0.0.1", undefined, 1, range), "127.0.0.1")
})

it("what a container of an environment writes does not count, in whichever network it is", () => {
  for (let one = 0; one < 50; one++) {
    const own = networkOf("environment", `svc-${one}`, one, range).gateway
    assert.strictEqual(callerAddress(own, "203.0.113.7", 1, range), own)
    assert.strictEqual(callerAddress(`::ffff:${own}`, "203.0.113.7", 1, range), `::ffff:${own}`)
    assert.isTrue(own.startsWith("10.77."))
    assert.strictEqual(callerAddress("10.219.0.2", "203.0.113.7", 1, range), "203.0.113.7")
    // A proxy may run in a network of Podman's own.
    assert.strictEqual(callerAddress("10.89.0.2", "203.0.113.7", 1, range), "203.0.113.7")
  }
})
