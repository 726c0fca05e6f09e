import { assert, it } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import { settings } from "#src/agents/settings.ts"

const read = (env: Readonly<Record<string, string>>) => settings.parse(ConfigProvider.fromEnv({ env }))

it.effect("schemes of editors are a list, and none that a browser runs, reads or sends in the clear", () =>
  Effect.gen(function* () {
    const { redirectSchemes } = yield* read({ SVC_AGENT_REDIRECT_SCHEMES: "zed, Cursor" })
    assert.deepStrictEqual(redirectSchemes, new Set(["zed", "cursor"]))
    const none = yield* read({ SVC_AGENT_REDIRECT_SCHEMES: "none" })
    assert.deepStrictEqual(none.redirectSchemes, new Set())
    for (const scheme of ["javascript", "data", "http", "https", "file", "a b", "zed,", ":"]) {
      const fault = yield* Effect.flip(read({ SVC_AGENT_REDIRECT_SCHEMES: scheme }))
      assert.include(String(fault), "SVC_AGENT_REDIRECT_SCHEMES", scheme)
    }
    for (const limit of ["0", "-1", "many"]) yield* Effect.flip(read({ SVC_AGENT_RATE_LIMIT: limit }))
  })
)
