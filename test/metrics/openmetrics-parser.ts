/** A strict reader of OpenMetrics text: the ABNF of the specification, for gauges. Whatever departs from it throws. */
import { assert } from "@effect/vitest"

export interface Parsed {
  readonly families: ReadonlyMap<string, { readonly help: string }>
  readonly samples: ReadonlyArray<{
    readonly name: string
    readonly labels: Readonly<Record<string, string>>
    readonly value: number
  }>
}

const metric = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/
const sampleLine = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)$/
const label = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(,|$)/y

const unescaped = (text: string): string => {
  assert.match(text, /^(?:[^\\\n]|\\[\\n"])*$/)
  return text.replace(/\\([\\n"])/g, (_, one: string) => (one === "n" ? "\n" : one))
}

export const parse = (text: string): Parsed => {
  assert.isTrue(text.endsWith("# EOF\n"))
  const lines = text.slice(0, -"# EOF\n".length).split("\n").slice(0, -1)
  const families = new Map<string, { help: string }>()
  const samples: Array<Parsed["samples"][number]> = []
  const seen = new Set<string>()
  let current = ""
  for (const line of lines) {
    const [hash, what, name = "", ...rest] = line.split(" ")
    if (hash === "#") {
      assert.match(name, metric)
      if (what === "TYPE") {
        // A family is not interrupted by another.
        assert.isFalse(families.has(name), name)
        assert.deepStrictEqual(rest, ["gauge"])
        families.set(name, { help: "" })
        current = name
      } else {
        assert.strictEqual(what, "HELP")
        assert.strictEqual(name, current)
        families.set(name, { help: unescaped(rest.join(" ")) })
      }
      continue
    }
    const [, sample = "", written = "", value] = sampleLine.exec(line) ?? assert.fail(`no sample: ${line}`)
    assert.strictEqual(sample, current)
    const labels: Record<string, string> = {}
    for (label.lastIndex = 0; label.lastIndex < written.length; ) {
      const [, key = "", quoted = ""] = label.exec(written) ?? assert.fail(`no labels: ${written}`)
      assert.notProperty(labels, key)
      labels[key] = unescaped(quoted)
    }
    const identity = `${sample} ${JSON.stringify(Object.entries(labels).sort())}`
    assert.isFalse(seen.has(identity), identity)
    seen.add(identity)
    samples.push({ name: sample, labels, value: Number(value) })
  }
  return { families, samples }
}
