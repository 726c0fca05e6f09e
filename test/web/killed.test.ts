/** A control plane that is a process of its own is killed under an open page, and started again. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { canLook, OpenBrowser } from "#test/setup/pages.ts"
import { buildDashboard } from "../../web/build.ts"
import { later, manifestOf } from "./world.ts"

await buildDashboard()

const Credentials = Schema.fromJsonString(Schema.Struct({ session: Schema.String }))

layer(OpenBrowser.layer, { excludeTestServices: true })("an open page", (it) => {
  const test = canLook ? it.effect : it.effect.skip

  test("says that its control plane was killed, keeps what it shows, and comes back by itself", () =>
    Effect.gen(function* () {
      const { base, planes, store } = yield* planesOnSharedServer
      const { browser } = yield* OpenBrowser
      if (browser === undefined) return yield* Effect.die(new Error("there is no browser"))
      const plane = yield* Effect.promise(() => makePlane(base, store.url))
      planes.push(plane)
      const apply = async (more?: string) => {
        const body = { manifest: parse(manifestOf("main", more)) }
        const { status } = await plane.call("POST", "/v1/orgs/main/manifest/apply", body)
        assert.strictEqual(status, 202)
      }
      yield* Effect.promise(async () => {
        await plane.start()
        await apply()
      })
      const file = path.join(base, "config", "svc", "credentials.json")
      const { session } = yield* Schema.decodeEffect(Credentials)(fs.readFileSync(file, "utf8"))
      const context = yield* Effect.acquireRelease(
        Effect.promise(() => browser.newContext({ baseURL: plane.url })),
        (open) => Effect.promise(() => open.close())
      )
      context.setDefaultTimeout(120_000)
      yield* Effect.promise(async () => {
        await context.addCookies([{ name: "svc_session", value: session, url: plane.url }])
        const page = await context.newPage()
        const link = (name: string) => page.getByRole("link", { name, exact: true })
        const gone = page.getByRole("status").filter({ hasText: "The control plane cannot be reached" })
        await page.goto("/app/main")
        await link("shop").waitFor()
        for (const [round, more] of [
          `${later}`,
          `${later}${later.replaceAll(/later/gi, "third")}`
        ].entries()) {
          await plane.crash()
          await gone.filter({ hasText: "What you see is as it was" }).waitFor()
          // What was there stays, and says that it is old.
          await link("shop").waitFor()
          await plane.start()
          // Nobody touches the page.
          await gone.waitFor({ state: "detached" })
          await apply(more)
          await link(round === 0 ? "later" : "third").waitFor()
          await link("shop").waitFor()
        }
      })
    }))
})
