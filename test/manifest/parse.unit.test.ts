import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { toYaml } from "#src/manifest/export.ts"
import { parseManifest } from "#src/manifest/parse.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { randomFrom, randomManifest } from "./state.ts"

const faults = (source: string) => {
  const parsed = parseManifest(source)
  if (Result.isSuccess(parsed)) throw new Error("it was taken")
  return parsed.failure
}
const head = "version: 1\norganization: main\nprojects:\n"
const project = "  - name: A\n    slug: alpha\n    runtimeClass: always-on\n"
/** Generous: what must not happen is minutes and gigabytes. The turns of other programs do not count. */
const bounded = <A>(body: () => A): A => {
  const [before, memory] = [process.threadCpuUsage(), process.memoryUsage.rss()]
  const result = body()
  const { user, system } = process.threadCpuUsage(before)
  assert.isBelow(user + system, 30_000_000)
  assert.isBelow(process.memoryUsage.rss() - memory, 1_500_000_000)
  return result
}

describe("reading a manifest", () => {
  campaign(
    it.live,
    "manifest-formats",
    "JSON and YAML of the same document are the same document",
    { rounds: 30 },
    ({ seed }) =>
      Effect.sync(() => {
        const manifest = randomManifest(randomFrom(seed))
        for (const source of [
          JSON.stringify(manifest),
          JSON.stringify(manifest, null, 2),
          toYaml(manifest)
        ]) {
          const parsed = parseManifest(source)
          assert.deepStrictEqual(
            Result.isSuccess(parsed) ? parsed.success.manifest : parsed.failure,
            manifest
          )
        }
      })
  )

  it("every fault is named at once, with pointer, line and column", () => {
    const source = `${head}${project}    region: 5\n    colour: red\n    caches:\n      - name: Bad\n        region: local\n`
    const found = faults(source)
    assert.sameDeepMembers(
      found.map(({ pointer, line, column }) => [pointer, line, column]),
      [
        ["/projects/0/region", 7, 5],
        ["/projects/0/colour", 8, 5],
        ["/projects/0/caches/0/name", 10, 9]
      ]
    )
    const json = faults('{\n  "version": 2,\n  "organization": "main"\n}')
    assert.deepStrictEqual(
      json.map(({ pointer, line, column }) => [pointer, line, column]),
      [["/version", 2, 3]]
    )
  })

  it("text that is neither JSON nor YAML says where it breaks", () => {
    const [fault] = faults("version: 1\norganization: [main\n")
    assert.isDefined(fault?.line)
    assert.include(fault?.message ?? "", "cannot be read")
    assert.include(faults("a: 1\n---\nb: 2\n")[0]?.message ?? "", "more than one document")
    assert.include(faults("version: 1\nversion: 1\n")[0]?.message ?? "", "twice")
    assert.isNotEmpty(faults(""))
  })

  it("letters that only look right are named", () => {
    const found = faults(`${head}  - name: A\n    slug: аlpha\n    runtimeClass: always-on\n`)
    assert.include(found[0]?.message ?? "", "U+0430")
  })

  it("names that are taken twice, reserved or implicit are refused where they stand", () => {
    const twice = faults(
      `${head}${project}    caches:\n      - { name: one, region: local }\n      - { name: one, region: local, environment: production }\n`
    )
    assert.deepStrictEqual(
      twice.map(({ pointer }) => pointer),
      ["/projects/0/caches/1/name"]
    )
    assert.include(twice[0]?.message ?? "", "/projects/0/caches/0/name")
    assert.include(faults(`${head}${project}${project}`)[0]?.message ?? "", "named twice")
    assert.include(faults(`${head}${project.replace("alpha", "admin")}`)[0]?.message ?? "", "reserved")
    assert.include(
      faults(`${head}${project}    environments: { production: {} }\n`)[0]?.message ?? "",
      "exists in every project"
    )
  })

  it("references that lead nowhere or in a circle are refused", () => {
    const missing = faults(`${head}${project}    queues: [{ name: jobs, deadLetterQueue: dead }]\n`)
    assert.include(missing[0]?.message ?? "", '"dead"')
    const circle = faults(
      `${head}${project}    queues:\n      - { name: aa, deadLetterQueue: bb }\n      - { name: bb, deadLetterQueue: aa }\n`
    )
    assert.strictEqual(circle.length, 2)
    assert.include(circle[0]?.message ?? "", "circle")
    const alert = `    queues: []\n    alerts: [{ name: slow, severity: info, scope: { queue: jobs } }]\n`
    assert.strictEqual(faults(`${head}${project}${alert}`)[0]?.pointer, "/projects/0/alerts/0/scope/queue")
  })

  it("anchors cannot be used to blow a document up", () => {
    const levels = Array.from(
      { length: 30 },
      (_, i) => `a${i}: &a${i} [${Array.from({ length: 9 }, () => (i === 0 ? "x" : `*a${i - 1}`)).join(",")}]`
    )
    const [fault] = bounded(() => faults(`${levels.join("\n")}\n`))
    assert.include(fault?.message ?? "", "anchor")
  })

  it("depth, size and number are bounded", () => {
    assert.include(
      bounded(() => faults(`${"[".repeat(100_000)}${"]".repeat(100_000)}`))[0]?.message ?? "",
      "nested"
    )
    const steep = Array.from({ length: 500 }, (_, i) => `${" ".repeat(i)}a:`).join("\n")
    assert.isNotEmpty(bounded(() => faults(steep)))
    const large = JSON.stringify({ version: 1, organization: "main", note: "x".repeat(10_000_000) })
    assert.include(bounded(() => faults(large))[0]?.message ?? "", "characters")
    const caches = Array.from({ length: 100_000 }, () => ({ name: "A" }))
    const many = JSON.stringify({
      version: 1,
      organization: "main",
      projects: [{ name: "A", slug: "alpha", runtimeClass: "always-on", caches }]
    })
    const found = bounded(() => faults(many))
    assert.isAtMost(found.length, 101)
  })
})
