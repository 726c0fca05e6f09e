import * as fs from "node:fs"
import { assert, it } from "@effect/vitest"
import { style } from "#src/identity/pages/style.ts"

const colours = (css: string) =>
  new Map([...css.matchAll(/(--[a-z-]+): (light-dark\([^)]+\))/g)].map(([, name, value]) => [name, value]))

it("pages that work without a script have the dashboard's colours", () => {
  const dashboard = colours(fs.readFileSync(new URL("../../web/src/style.css", import.meta.url), "utf8"))
  const pages = [...colours(style)]
  assert.isAbove(pages.length, 5)
  for (const [name, value] of pages) assert.strictEqual(dashboard.get(name), value, name)
})
