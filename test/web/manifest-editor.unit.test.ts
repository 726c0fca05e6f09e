/** What the editor of manifests offers and underlines: by the schema that the API gives, and by the reader's own words. */
import { assert, describe, it } from "@effect/vitest"
import { manifestJsonSchema } from "#src/manifest/json-schema.ts"
import { completionsAt } from "../../web/src/manifest/completion.ts"
import { faultsOf } from "../../web/src/manifest/faults.ts"
import { pathAt } from "../../web/src/manifest/place.ts"
import { describe as described, schemasAt } from "../../web/src/manifest/schema.ts"

const schema = manifestJsonSchema()

/** What is offered where the bar stands, as one would see the text after choosing each. */
const offered = (text: string, asked = true) => {
  const offset = text.indexOf("|")
  const plain = text.replace("|", "")
  return completionsAt(schema, plain, offset, asked)
}
const labels = (text: string, asked?: boolean) =>
  offered(text, asked)?.options.map(({ label }) => label) ?? []

const project = (more: string) => `version: 1
organization: main
projects:
  - name: Shop
    slug: shop
    runtimeClass: always-on
${more}`

describe("the editor of manifests", () => {
  it("offers sections, fields and values where they belong, in texts that are not whole", () => {
    assert.includeMembers([...labels("|")], ["version", "organization", "projects"])
    assert.deepStrictEqual(labels("version: 1\norganization: main\npro|"), ["projects"])
    const sections = labels(project("    cac|"))
    assert.includeMembers([...sections], ["caches", "queues", "databases"])
    assert.notInclude(sections, "slug")
    assert.deepStrictEqual(
      labels(project("    runtimeClass: |").replace("    runtimeClass: always-on\n", "")),
      ["scale-to-zero", "always-on"]
    )
    assert.includeMembers([...labels(project("    caches:\n      - |"))], ["name", "sku", "region"])
    assert.include(labels(project("    caches:\n      - name: sessions\n        sku: ca|")), "cache-n1")
    assert.include(labels(project("    caches: [{ name: sessions, reg| }]")), "region")
    assert.include(labels(project("    caches: [{ name: sessions, region: | }]")), "local")
    assert.include(labels(project("    caches: [{ name: sessions\n    queues:\n      - na|")), "name")
  })

  it("offers the fields of the kind that is written, and what a list may hold", () => {
    const target = labels(
      project("    crons:\n      - name: nightly\n        target:\n          kind: http\n          |")
    )
    assert.include(target, "path")
    assert.include(
      labels(project("    aiGateways:\n      - name: one\n        allowedModels: [|]")),
      "svc/fast"
    )
  })

  it("writes the beginning of what a section holds, and leaves out what is there", () => {
    const caches = offered(project("    cach|"))?.options.find(({ label }) => label === "caches")
    assert.strictEqual(caches?.apply, "caches:\n      - ")
    const renamed = offered(project("    cach|: []"))?.options.find(({ label }) => label === "caches")
    assert.isUndefined(renamed?.apply)
  })

  it("is silent where it is not asked, in comments, and in what is no manifest", () => {
    assert.deepStrictEqual(labels("version: 1\n|", false), [])
    assert.deepStrictEqual(labels("# pro|"), [])
    assert.deepStrictEqual(labels("{{{{ [|"), [])
  })

  it("says what a field is", () => {
    const text = project("    previewData: allowed")
    const place = pathAt(text, text.indexOf("previewData") + 3)
    assert.isDefined(place)
    if (place === undefined) return
    assert.match(described(schemasAt(schema, place.path, place.document)), /copies of production data/)
  })

  it("underlines unknown fields, wrong types, wrong values and what points nowhere, at their places", () => {
    const text = project(
      "    caches: [{ name: sessions, regoin: local }]\n    queues:\n      - name: jobs\n        deadLetterQueue: none"
    ).replace("version: 1", "version: one")
    const found = faultsOf(text).map(({ from, to, message }) => [text.slice(from, to), message] as const)
    const at = (word: string) => found.find(([place]) => place === word)?.[1]
    assert.match(at("regoin") ?? "", /^\/projects\/0\/caches\/0\/regoin is not a key that is known here$/)
    assert.match(at("version") ?? "", /^\/version /)
    const nowhere = project("    queues: [{ name: jobs, deadLetterQueue: none }]")
    assert.deepStrictEqual(
      faultsOf(nowhere).map(({ from, to }) => nowhere.slice(from, to)),
      ["deadLetterQueue"]
    )
    assert.deepStrictEqual(faultsOf(project("    caches: [{ name: sessions, region: local }]")), [])
  })

  it("stays within the text, whatever is in it", () => {
    for (const text of [
      "a",
      ":",
      "{",
      "[",
      "version: 1\n\n",
      "version: 1\r\nnam: x\r\n",
      "- &a *a",
      '{"version": "1'
    ])
      for (const { from, to } of faultsOf(text)) {
        assert.isAtLeast(from, 0, text)
        assert.isAtMost(to, text.length, text)
        assert.isAtMost(from, to, text)
      }
  })
})
