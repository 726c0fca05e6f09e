import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { chromium } from "playwright-core"
import { browserPath } from "#test/setup/browser.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

const executablePath = browserPath()

layer(testPlane({ roles: new Set(["api"] as const) }), { excludeTestServices: true })(
  "the documentation",
  (it) => {
    const test = executablePath === undefined ? it.effect.skip : it.effect

    test("is a page that works under its own policy, and asks nobody else for anything", () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const open = yield* Effect.acquireRelease(
          Effect.promise(() =>
            chromium.launch({
              executablePath: executablePath ?? "",
              timeout: 150_000,
              args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
            })
          ),
          (browser) => Effect.promise(() => browser.close())
        )
        yield* Effect.promise(async () => {
          const page = await open.newPage({ baseURL: url })
          page.setDefaultTimeout(120_000)
          const wrong: Array<string> = []
          const asked: Array<string> = []
          page.on("console", (message) => {
            // The browser asks for an icon by itself, and there is none.
            if (message.type() === "error" && !message.location().url.endsWith("/favicon.ico"))
              wrong.push(message.text())
          })
          page.on("pageerror", (error) => void wrong.push(error.message))
          page.on("request", (request) => {
            if (!request.url().startsWith("data:")) asked.push(new URL(request.url()).origin)
          })
          const answer = await page.goto("/docs")
          assert.strictEqual(answer?.status(), 200)
          assert.strictEqual(answer?.headers()["content-encoding"], "br")
          // What the script makes of the description: the first operation, in the one group that it shows open.
          await page.getByText("Who the credential belongs to and what it may do where").first().waitFor()
          assert.deepStrictEqual(wrong, [])
          assert.deepStrictEqual([...new Set(asked)], [url])
        })
      }))
  }
)
