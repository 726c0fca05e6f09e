/** What people copy into a shell. */
import { assert, it } from "@effect/vitest"
import { configurations } from "#src/mcp/client-configurations.ts"

it("in commands to copy, an address is one word, whatever is in it", () => {
  const known = configurations("http://127.0.0.1:8787/$(hacked);'&`hacked`")
  const quoted = "'http://127.0.0.1:8787/$(hacked);'\\''&`hacked`"
  assert.strictEqual(known["claude-code"].text, `claude mcp add --transport http svc ${quoted}/mcp'`)
  assert.isTrue(known.stdio.text.endsWith(` mcp serve --api-url ${quoted}'`))
  const plain = configurations("https://svc.example.com")
  assert.isTrue(plain["claude-code"].text.endsWith(" svc https://svc.example.com/mcp"))
})
