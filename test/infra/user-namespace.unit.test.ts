import { assert, describe, it } from "@effect/vitest"
import { roomIn } from "#src/infra/containers/user-namespace.ts"

describe("users for containers", () => {
  it("are those of the user `containers`, in blocks of 65,536", () => {
    assert.strictEqual(roomIn("me:100000:65536\ncontainers:2147483648:2147483648\n"), 32_768)
    assert.strictEqual(roomIn("containers:100000:65536"), 1)
    assert.strictEqual(roomIn("containers:100000:65535\ncontainers:300000:131073\n"), 2)
    for (const text of [
      "",
      "me:100000:65536\n",
      "containers:100000:1024\n",
      "containers\n",
      "#containers:1:65536\n"
    ])
      assert.strictEqual(roomIn(text), 0)
  })
})
