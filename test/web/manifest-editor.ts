/** The editor of manifests in a browser: tests for a world that other pages' tests share. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Page } from "playwright-core"
import { Plane } from "#test/setup/control-plane.ts"
import { inaccessible } from "#test/setup/pages.ts"
import { editor, opened, screenshot, type Test } from "./world.ts"

const focusedText = (page: Page) => page.evaluate("document.activeElement?.textContent?.trim() ?? ''")

export const editorTests = (test: Test): void => {
  test("the editor of manifests offers what the schema knows, underlines what is wrong, and keeps what was typed", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const { page, wrong, elsewhere } = yield* opened(session, "main")
      yield* Effect.promise(async () => {
        const schema = page.waitForResponse("**/v1/manifest.schema.json")
        await page.getByRole("link", { name: "Plan", exact: true }).click()
        await schema
        await page.getByLabel("Manifest file").setInputFiles({
          name: "first.yaml",
          mimeType: "application/yaml",
          buffer: Buffer.from("version: 1\norganization: main\n")
        })
        await editor(page).getByText("organization: main").waitFor()
        await editor(page).click()
        await page.keyboard.press("Control+End")
        await page.keyboard.type("proj")
        await page.getByRole("option", { name: /^projects/ }).waitFor()
        await screenshot(page, "editor-completion")
        // Enter that comes sooner than 75 ms after the list was meant as an end of the line.
        await page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")
        await page.keyboard.press("Enter")
        await editor(page).getByText("projects:").waitFor()
        await page.keyboard.type("nam: Shop")
        await editor(page).getByText("nam: Shop").waitFor()
        const fault = editor(page).locator(".cm-lintRange-error", { hasText: "nam" })
        await fault.first().waitFor()
        await page.keyboard.press("F8")
        await page.getByText("/projects/0/nam is not a key that is known here").first().waitFor()
        await screenshot(page, "editor-problem")
        // Styles made by the editor are in force under the page's policy.
        assert.strictEqual(
          await page.evaluate(
            "getComputedStyle(document.activeElement.shadowRoot.querySelector('.cm-scroller')).display"
          ),
          "flex"
        )
        assert.deepStrictEqual(await inaccessible(page), [])
        // Nobody who goes by keyboard is kept in it.
        await page.keyboard.press("Escape")
        await page.keyboard.press("Tab")
        assert.strictEqual(await focusedText(page), "Plan")
        await page.getByRole("link", { name: "Overview" }).click()
        await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor()
        await page.goBack()
        await editor(page).getByText("nam: Shop").waitFor()
        // What is opened takes its place, and can be taken back.
        await page.getByLabel("Manifest file").setInputFiles({
          name: "other.yaml",
          mimeType: "application/yaml",
          buffer: Buffer.from("version: 1\r\norganization: main\r\n")
        })
        await editor(page).getByText("nam: Shop").waitFor({ state: "detached" })
        await editor(page).press("Control+z")
        await editor(page).getByText("nam: Shop").waitFor()
      })
      assert.deepStrictEqual([wrong, elsewhere], [[], []])
    }))
}
