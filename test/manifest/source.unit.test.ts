import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { stringify } from "yaml"
import { type Path, parseManifest, parseSource } from "#src/manifest/parse.ts"

const read = (source: string) => {
  const result = parseSource(source)
  if (Result.isFailure(result)) throw new Error(JSON.stringify(result.failure[0]))
  return result.success
}
const faults = (source: string) => {
  const result = parseManifest(source)
  if (Result.isSuccess(result)) throw new Error("the source was taken")
  return result.failure
}
/**
 * Generous: what must not happen is that one document keeps the program busy for minutes. The turns of other programs
 * do not count.
 */
const inTime = <A>(body: () => A): A => {
  const before = process.threadCpuUsage()
  const result = body()
  const { user, system } = process.threadCpuUsage(before)
  assert.isBelow(user + system, 30_000_000)
  return result
}
const numbered = <A>(length: number, make: (index: number) => A) => Array.from({ length }, (_, i) => make(i))
const project = (extra: object) => ({
  version: 1,
  organization: "main",
  projects: [{ name: "A", slug: "alpha", runtimeClass: "always-on", ...extra }]
})
const isContainer = (value: unknown): value is object => typeof value === "object" && value !== null
const pathsOf = (value: unknown, path: Path = []): ReadonlyArray<Path> => [
  path,
  ...(isContainer(value)
    ? Object.entries(value).flatMap(([key, inner]) =>
        pathsOf(inner, [...path, Array.isArray(value) ? Number(key) : key])
      )
    : [])
]
/**
 * Whether a key of one character that has to be escaped is in it. Node 26 reads such a key as a backslash where it has
 * read another object before that had a backslash in its place: JSON.parse('{"a":1,"\\\\":2}') and then '{"a":1,"\\n":2}'.
 */
const misread = (value: unknown): boolean =>
  pathsOf(value).some((path) => {
    const key = path.at(-1)
    return typeof key === "string" && key.length === 1 && JSON.stringify(key).length > 3
  })
const textAt = (source: string, position: { readonly line?: number; readonly column?: number }) =>
  (source.split("\n")[(position.line ?? 0) - 1] ?? "").slice((position.column ?? 0) - 1)

const Tree = Schema.Record(Schema.String, Schema.Json)

describe("the source of a manifest", () => {
  it.prop(
    "every part of a JSON text is found: a member at its key, an item at its value",
    [Tree],
    ([tree]) => {
      if (misread(tree)) return
      for (const source of [
        JSON.stringify(tree),
        JSON.stringify(tree, null, 2),
        `\n\t${JSON.stringify(tree)} `
      ]) {
        const { value, locate } = read(source)
        const plain = JSON.parse(source)
        assert.deepStrictEqual(value, plain)
        for (const path of pathsOf(plain)) {
          const found = textAt(source, locate(path))
          const last = path.at(-1)
          if (typeof last === "string") assert.isTrue(found.startsWith(JSON.stringify(last)), found)
          else assert.notMatch(found, /^[\s,:\]}]/)
        }
      }
    },
    { arbitrary: { runs: 200 } }
  )

  it.prop(
    "YAML says the same as the JSON it was made from, and each key is found in it",
    [Schema.Record(Schema.String.check(Schema.isPattern(/^[a-z]{1,8}$/)), Schema.Json)],
    ([tree]) => {
      const plain: unknown = JSON.parse(JSON.stringify(tree))
      const source = stringify(plain, { lineWidth: 0, aliasDuplicateObjects: false })
      const { value, locate } = read(source)
      assert.deepStrictEqual(value, plain)
      for (const key of Object.keys(tree))
        assert.match(textAt(source, locate([key])), new RegExp(`^"?${key}"?:`))
    },
    { arbitrary: { runs: 200 } }
  )

  it("a fault in something that is missing points at what it is missing from", () => {
    const { locate } = read('{\n  "projects": [\n    {"name": "A"}\n  ]\n}')
    assert.deepStrictEqual(locate(["projects", 0, "slug"]), { line: 3, column: 5 })
    assert.deepStrictEqual(locate(["nothing", "there"]), { line: 1, column: 1 })
    assert.deepStrictEqual(read("a:\n  - b: 1\n").locate(["a", 0, "c"]), { line: 2, column: 5 })
  })

  it("a key that stands twice is refused in JSON and in YAML, at any depth and however it is written", () => {
    const json = faults('{"version": 1,\n "projects": [{"slug": "aa",\n  "sl\\u0075g": "bb"}]}')
    assert.deepStrictEqual(json, [
      {
        pointer: "/projects/0/slug",
        message: "stands twice; the first is in line 2",
        line: 3,
        column: 3
      }
    ])
    const yaml = faults('version: 1\nprojects:\n  - slug: aa\n    "slug": bb\n')
    assert.deepStrictEqual(yaml, [
      {
        pointer: "/projects/0/slug",
        message: "stands twice; the first is in line 3",
        line: 4,
        column: 5
      }
    ])
  })

  it("broken text is reported where it breaks, as JSON and as YAML", () => {
    const [json] = faults('{"version": 1,\n "organization": }}')
    assert.include(json?.message ?? "", "cannot be read as JSON or YAML")
    assert.strictEqual(json?.line, 2)
    const [yaml] = faults("version: 1\norganization: 'main\n")
    assert.include(yaml?.message ?? "", "cannot be read as JSON or YAML")
    assert.isDefined(yaml?.line)
  })

  it("anchors, aliases, tags, merge keys and second documents are refused where they stand", () => {
    const cases = [
      ["a: 1\nb: &x 1\n", "anchor", 2, 4],
      ["a: 1\nb: *x\n", "alias", 2, 4],
      ["a: 1\nb: !!js/function 'x'\n", "tag", 2, 4],
      ["version: 1\n---\nversion: 1\n", "more than one document", 2, 1],
      ["version: 1\norganization: main\n<<: { projects: [] }\n", "not a key", 3, 1]
    ] as const
    for (const [source, word, line, column] of cases) {
      const [fault] = faults(source)
      assert.include(fault?.message ?? "", word)
      assert.deepStrictEqual([fault?.line, fault?.column], [line, column], source)
    }
    // Text that only looks like them is text.
    const quoted = "a: '&x'\nb: \"*x\"\nc: |\n  &x !y *z\nd: x & y * z !\n"
    assert.deepStrictEqual(read(quoted).value, { a: "&x", b: "*x", c: "&x !y *z\n", d: "x & y * z !" })
  })

  it("scalars are those of YAML 1.2: no yes, no octal with a zero, no dates", () => {
    assert.deepStrictEqual(read("a: yes\nb: no\nc: 012\nd: 2026-01-02\ne: 1_000\nf: 0x10\n").value, {
      a: "yes",
      b: "no",
      c: 12,
      d: "2026-01-02",
      e: "1_000",
      f: 16
    })
  })

  it("nesting is refused at the place where it becomes too deep, also where quotes seem to hide it", () => {
    const deep = 400_000
    const cases = [
      ["[".repeat(deep) + "]".repeat(deep), 1, 65],
      [`{"a":${"[".repeat(deep)}${"]".repeat(deep)}}`, 1, 69],
      [`x: it"s\na: ${"[".repeat(deep)}`, 2, 68],
      ["- ".repeat(deep), 1, 131],
      [numbered(1_000, (i) => `${" ".repeat(i)}a:`).join("\n"), 66, 66]
    ] as const
    for (const [source, line, column] of cases) {
      const [fault] = inTime(() => faults(source))
      assert.include(fault?.message ?? "", "deeper than 64 levels")
      assert.deepStrictEqual([fault?.line, fault?.column], [line, column])
    }
    const most = `${"[".repeat(64)}${"]".repeat(64)}`
    assert.isTrue(Result.isSuccess(parseSource(most)))
    assert.isTrue(Result.isSuccess(parseSource(`a: ${most.slice(1, -1)}`)))
  })

  it("more entries than a list or a document may have are refused by the name of their list, as JSON and as YAML", () => {
    const entries = numbered(25_000, () => ({ colour: "red" }))
    const caches = inTime(() => faults(JSON.stringify(project({ caches: entries }))))
    assert.strictEqual(caches.length, 1)
    assert.strictEqual(caches[0]?.pointer, "/projects/0/caches")
    assert.include(caches[0]?.message ?? "", "25000 entries")
    const keys = `version: 1\n${numbered(25_000, (i) => `key${i}: 1`).join("\n")}\n`
    assert.include(inTime(() => faults(keys))[0]?.message ?? "", "25001 entries")
    const list = `version: 1\nprojects:\n${numbered(70_000, (i) => `  - { name: p${i}, slug: p${i} }`).join("\n")}\n`
    assert.include(inTime(() => faults(list))[0]?.message ?? "", "too many")
    const spread = numbered(
      10,
      () => project({ caches: numbered(10_500, () => ({ colour: "red" })) }).projects[0]
    )
    const many = JSON.stringify({ version: 1, organization: "main", projects: spread })
    assert.include(inTime(() => faults(many))[0]?.message ?? "", "too many")
    // The slowest of this tier: counting covered lines on a busy machine makes it several times as slow.
  }, 120_000)

  it("of many faults the first hundred are listed and the others counted", () => {
    const caches = numbered(20_000, () => ({ colour: "red" }))
    const found = inTime(() => faults(JSON.stringify(project({ caches }), null, 1)))
    assert.strictEqual(found.length, 101)
    assert.deepStrictEqual(
      [found[0]?.pointer, found[0]?.line, found[0]?.column],
      ["/projects/0/caches/0/colour", 11, 6]
    )
    // An unknown key and two that are required, in each.
    assert.include(found.at(-1)?.message ?? "", `${3 * 20_000 - 100} more`)
  })

  it("a long chain of dead letter queues is followed once, and a long circle is named", () => {
    const chain = numbered(20_000, (i) => ({
      name: `q${i}`,
      deadLetterQueue: i === 19_999 ? null : `q${i + 1}`
    }))
    assert.isTrue(Result.isSuccess(inTime(() => parseManifest(JSON.stringify(project({ queues: chain }))))))
    const circle = chain.map((queue, i) => (i === 19_999 ? { ...queue, deadLetterQueue: "q10000" } : queue))
    const found = inTime(() => faults(JSON.stringify(project({ queues: circle }))))
    assert.strictEqual(found[0]?.pointer, "/projects/0/queues/10000/deadLetterQueue")
    assert.include(found[0]?.message ?? "", "circle")
    assert.include(found.at(-1)?.message ?? "", `${10_000 - 100} more`)
  })

  it("keys of the language itself are keys like any other", () => {
    for (const source of [
      '{"version": 1, "organization": "main", "__proto__": {"projects": []}}',
      "version: 1\norganization: main\n__proto__:\n  projects: []\n"
    ]) {
      assert.deepStrictEqual(
        faults(source).map(({ pointer }) => pointer),
        ["/__proto__"]
      )
    }
    const slugs = project({ environments: { constructor: {}, "to-string": {} } })
    assert.isTrue(Result.isSuccess(parseManifest(JSON.stringify(slugs))))
  })

  it("text that cannot be stored is refused where it stands, however it is written", () => {
    const named = (name: string) => JSON.stringify(project({})).replace('"A"', `\n${name}`)
    for (const [source, word] of [
      [named('"a\\u0000"'), "U+0000"],
      [named('"a\\ud800"'), "surrogates"],
      [named('"a\\0"'), "U+0000"]
    ] as const) {
      const [fault] = faults(source)
      assert.include(fault?.message ?? "", word)
      assert.strictEqual(fault?.pointer, "/projects/0/name")
    }
  })

  it("a text that says nothing, or something else, says so", () => {
    assert.include(faults("")[0]?.message ?? "", "empty")
    assert.include(faults("# only a note\n")[0]?.message ?? "", "empty")
    for (const source of ["null", "[]", "hello", "42"]) {
      assert.include(faults(source)[0]?.message ?? "", "must be a map")
    }
  })
})
