/** What the dashboard makes of answers that are none: refusals, failures, and a server that takes its time. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { until } from "#test/setup/wait.ts"
import { editor, inEditor, manifestOf, opened, pasted, type Test } from "./world.ts"

export const refusals = (test: Test) => {
  test("refusals are said with what to do next, and nothing that was typed is lost", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const { page } = yield* opened(session, "main/plan")
      const plan = page.getByRole("button", { name: "Plan", exact: true })
      const typed = `${manifestOf("main")}# مخطط\n`
      yield* Effect.promise(async () => {
        await pasted(page, typed)
        for (const [status, next] of [
          [402, "an owner can change that"],
          [403, "Ask an admin or an owner"],
          [404, "Go back to the list"],
          [409, "Look at the present state"],
          [413, "at most 4 MB"],
          [429, "Wait a minute"],
          [500, "Its log has the cause"],
          [503, "Try again in a few seconds"]
        ] as const) {
          const detail = `Refused with ${status}`
          await page.route("**/manifest/plan*", (route) =>
            route.fulfill({
              status,
              contentType: "application/problem+json",
              body: JSON.stringify({
                type: "about:blank",
                title: "No",
                status,
                code: "x",
                detail,
                requestId: "r"
              })
            })
          )
          await plan.click()
          const said = page.getByRole("alert").filter({ hasText: next })
          await said.waitFor()
          // Of those that the operation has, what the server says comes first.
          if (![402, 404].includes(status)) assert.include(await said.textContent(), detail)
          assert.strictEqual(await inEditor(page), typed)
          await page.unroute("**/manifest/plan*")
        }

        // A gateway in between answers with a page of its own.
        await page.route("**/manifest/plan*", (route) =>
          route.fulfill({ status: 502, contentType: "text/html", body: "<h1>Bad gateway</h1>" })
        )
        await plan.click()
        await page.getByRole("alert").filter({ hasText: "does not answer" }).waitFor()
        await page.unroute("**/manifest/plan*")

        // While the answer is awaited it cannot be asked for twice; when it comes it is the plan that was typed.
        const arrived = Promise.withResolvers<void>()
        const answer = Promise.withResolvers<void>()
        await page.route("**/manifest/plan*", async (route) => {
          arrived.resolve()
          await answer.promise
          await route.continue()
        })
        await plan.click()
        await arrived.promise
        assert.isTrue(await plan.isDisabled())
        answer.resolve()
        await page.getByRole("heading", { name: "Creates" }).waitFor()
        await page.goBack()
        await editor(page).getByText("projects:").waitFor()
        assert.strictEqual(await inEditor(page), typed)
      })
    }))

  test("a manifest that is too large is refused before it is sent, and one of four megabytes is planned", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const { page } = yield* opened(session, "main/plan")
      const plan = page.getByRole("button", { name: "Plan", exact: true })
      const open = (text: string) =>
        page
          .getByLabel("Manifest file")
          .setInputFiles({ name: "svc.yaml", mimeType: "text/yaml", buffer: Buffer.from(text) })
      yield* Effect.promise(async () => {
        const line = `# ${"filling ".repeat(60)}\n`
        const most = manifestOf("main") + line.repeat(Math.floor((4 * 1024 * 1024 - 2_000) / line.length))
        await open(most + line.repeat(10))
        await page.getByRole("alert").filter({ hasText: "at most 4 MB" }).waitFor()
        await open(most)
        await plan.click()
        await page.getByRole("heading", { name: "Creates" }).waitFor()
      })
    }))

  test("a page's file that does not come is asked for once more", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const { page } = yield* opened(session, "main")
      let dropped = 0
      yield* Effect.promise(async () => {
        await page.route("**/assets/members-*.js*", (route) =>
          ++dropped === 1 ? route.abort("connectionreset") : route.continue()
        )
        await page.getByRole("link", { name: "Members" }).click()
        await page.getByRole("heading", { name: "Members", level: 1 }).waitFor()
      })
      assert.isAtLeast(dropped, 2)
    }))

  test("a page whose file does not come is tried again, and loading everything again keeps what was typed", () =>
    Effect.gen(function* () {
      const { tenant } = yield* Plane
      const one = yield* tenant()
      const { page } = yield* opened(one.owner, `${one.slug}/plan`)
      yield* Effect.promise(async () => {
        // The page does not load itself again meanwhile, as it does after an update.
        await page.evaluate("sessionStorage.setItem('reloaded-at', String(Date.now()))")
        await pasted(page, "kept: through it all")
        const files = "**/assets/{members,audit}-*.js*"
        await page.route(files, (route) => route.abort("connectionreset"))
        await page.getByRole("link", { name: "Members" }).click()
        await page.getByRole("alert").getByText("what was typed into a manifest is kept").waitFor()
        await page.unroute(files)
        // Chromium drops a file as well when the machine gets another network meanwhile; people then try again.
        const members = page.getByRole("heading", { name: "Members", level: 1 })
        await until("the page is there", async () => {
          const again = page.getByRole("button", { name: "Try again" })
          if (await again.isVisible()) await again.click({ timeout: 1_000 })
          return members.isVisible()
        })

        await page.route(files, (route) => route.abort("connectionreset"))
        await page.getByRole("link", { name: "Audit log" }).click()
        await page.getByRole("alert").getByText("This page failed").waitFor()
        await page.unroute(files)
        await page.getByRole("button", { name: "Load everything again" }).click()
        await page.getByRole("heading", { name: "Audit log", level: 1 }).waitFor()
        assert.notInclude(String(await page.evaluate("JSON.stringify({ ...sessionStorage })")), "kept")
        await page.getByRole("link", { name: "Plan", exact: true }).click()
        await editor(page).getByText("kept: through it all").waitFor()
      })
    }))
}
