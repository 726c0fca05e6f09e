import { assert, describe, it } from "@effect/vitest"
import { returnPath } from "#src/visitors/return-path.ts"

describe("the path that a visitor goes on to", () => {
  it("is the one that was asked for", () => {
    for (const path of [
      "/",
      "/a/b?c=d&e=//f",
      "/%2f%2fevil.test",
      "/%5cevil.test",
      "/a//b",
      "/.well-known/x",
      "/svc/"
    ])
      assert.strictEqual(returnPath(path), path)
  })

  it("leads nowhere else", () => {
    const evil = [
      null,
      undefined,
      "",
      "//evil.test",
      "///evil.test",
      "/\\evil.test",
      "\\\\evil.test",
      "/a\\b",
      "https://evil.test/",
      "https:evil.test",
      "javascript:alert(1)",
      "evil.test",
      " /a",
      "/\t/evil.test",
      "/\n/evil.test",
      "/a\r\nset-cookie: a=b",
      "/a b",
      "/\u2028",
      "/ü",
      "*",
      "/.svc/access?code=1",
      `/${"a".repeat(400)}`,
      `/${"!".repeat(200)}`
    ]
    for (const path of evil) assert.strictEqual(returnPath(path), "/", JSON.stringify(path))
  })
})
