/** What the dashboard takes from the rest of the program. */
import * as fs from "node:fs"
import { assert, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { kinds } from "#schemas/index.ts"
import { Manifest as ManifestDocument } from "#schemas/manifest.ts"
import { firstOf } from "../../web/src/pages/first-of.ts"
import { kindNames } from "../../web/src/shell/kind-names.ts"

it("each kind of resource has a list of its own, but for those that contain others", () => {
  const containers = ["Project", "Environment"]
  assert.sameMembers(
    kindNames.map(([kind]) => kind),
    kinds.map(({ name }) => name).filter((name) => !containers.includes(name))
  )
})

it("of each of them a page says how the first one is made, in lines that a manifest takes", () => {
  assert.sameMembers(
    Object.keys(firstOf),
    kindNames.map(([kind]) => kind)
  )
  for (const { manifest } of Object.values(firstOf))
    if (manifest !== undefined)
      Schema.decodeUnknownSync(ManifestDocument)({
        version: 1,
        organization: "acme",
        projects: [{ name: "Shop", slug: "shop", runtimeClass: "always-on", ...parse(manifest) }]
      })
})

it("it imports definitions only, which load in a browser", () => {
  const allowed =
    /^#src\/container-logs\/log-page[.]ts$|^#src\/manifest\/parse[.]ts$|^#schemas\/|^#src\/api\/definition\/|^#src\/[a-z-]+\/(api(\/[a-z-]+)?|destinations\/api|event-types|score)[.]ts$|^[.]{1,2}\//
  const packages =
    /^(react|react-dom\/client|@base-ui\/react\/[a-z-]+|uplot(\/dist\/uPlot[.]min[.]css)?|yaml|@codemirror\/[a-z-]+|@lezer\/highlight|effect\/[A-Za-z/-]+)$/
  const faults = fs
    .readdirSync("web/src", { recursive: true, encoding: "utf8" })
    .filter((file) => /[.]tsx?$/.test(file))
    .flatMap((file) =>
      [...fs.readFileSync(`web/src/${file}`, "utf8").matchAll(/(?:\bfrom |^import |import\()"([^"\n]+)"/gm)]
        .map(([, from = ""]) => from)
        .filter((from) => !allowed.test(from) && !packages.test(from))
        .map((from) => `${file}: ${from}`)
    )
  assert.deepStrictEqual(faults, [])
})
