/** What a refusal says: what happened, and what to do next. */
import { assert, it } from "@effect/vitest"
import { failureOf } from "../../web/src/api/failure.ts"

it("every status has a sentence that says what to do next, after what the server said", () => {
  for (const status of [0, 401, 402, 403, 404, 409, 412, 413, 429, 500, 502, 503]) {
    const { message } = failureOf({ status, detail: "The server says why", requestId: "r-1" })
    assert.match(message, /^The server says why\. [A-Z].*\.( \(request r-1\))?$/, String(status))
    assert.strictEqual(message.includes("r-1"), status >= 500, String(status))
    assert.isNotEmpty(failureOf({ status, detail: "" }).message)
  }
  assert.match(failureOf({ status: 504, detail: "" }).message, /what stands before it/)
  assert.strictEqual(failureOf({ status: 422, detail: "The name is taken" }).message, "The name is taken.")
})
