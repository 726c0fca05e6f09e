import { assert, describe, it } from "@effect/vitest"
import { hasRange } from "#src/infra/containers/user-namespace.ts"

describe("a range of users for containers", () => {
  it("is one that the user `containers` has and that is large enough for a container", () => {
    assert.isTrue(hasRange("me:100000:65536\ncontainers:2147483648:2147483648\n"))
    assert.isTrue(hasRange("containers:100000:65536"))
    for (const text of [
      "",
      "me:100000:65536\n",
      "containers:100000:1024\n",
      "containers\n",
      "#containers:1:65536\n"
    ])
      assert.isFalse(hasRange(text))
  })
})
