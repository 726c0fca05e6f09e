import { readdirSync, readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { completeSpec } from "#schemas/complete-spec.ts"
import { kinds } from "#schemas/index.ts"
import type { Kind } from "#schemas/kind.ts"
import { Manifest, type ManifestProject } from "#schemas/manifest.ts"
import { unavailableSections } from "#schemas/unavailable-sections.ts"
import { exportManifest } from "#src/manifest/export.ts"
import { manifestJsonSchema } from "#src/manifest/json-schema.ts"
import { makePlan } from "#src/manifest/plan.ts"
import { base, document, everything } from "./samples.ts"
import { applySteps, randomFrom, randomManifest } from "./state.ts"

const ajv = new Ajv2020({ allErrors: true })
const validate = ajv.compile(manifestJsonSchema())
const faultsOf = (value: unknown): string | undefined =>
  validate(value) ? undefined : ajv.errorsText(validate.errors)

const decode = Schema.decodeUnknownResult(Manifest, { errors: "all", onExcessProperty: "error" })
/** Whether parser and JSON Schema say the same of it. */
const agree = (value: unknown): boolean => {
  const taken = Result.isSuccess(decode(value))
  assert.strictEqual(faultsOf(value) === undefined, taken, `${JSON.stringify(value)}: ${faultsOf(value)}`)
  return taken
}

/** Every document that differs from this one in one place. */
function* variants(value: unknown): Generator<unknown> {
  for (const other of [null, true, -1, 0.5, 1e9, "", "Not a name", [], {}]) yield other
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      for (const variant of variants(item)) yield value.with(index, variant)
    }
    yield [...value, ...value.slice(0, 1), null]
  } else if (typeof value === "object" && value !== null) {
    yield { ...value, colour: "red" }
    for (const [key, inner] of Object.entries(value)) {
      const { [key]: _, ...rest } = Object(value)
      yield rest
      for (const variant of variants(inner)) yield { ...value, [key]: variant }
    }
  }
}

describe("the JSON Schema of the manifest", () => {
  it("takes the examples", () => {
    const folder = new URL("../../examples/", import.meta.url)
    const examples = readdirSync(folder).filter((name) => name.endsWith(".yaml"))
    assert.isAtLeast(examples.length, 2)
    for (const name of examples) {
      const value: unknown = parse(readFileSync(new URL(name, folder), "utf8"))
      assert.isUndefined(faultsOf(value), name)
      assert.isTrue(agree(value), name)
    }
  })

  it("takes what the parser takes, and what an export shows", () => {
    for (let seed = 1; seed <= 200; seed++) {
      const manifest = randomManifest(randomFrom(seed))
      assert.isTrue(agree(manifest), `seed ${seed}`)
      const options = {
        prune: true,
        confirm: [],
        fingerprint: (text: string) => text,
        regions: ["local"]
      } as const
      const state = applySteps([], makePlan(manifest, [], options).steps)
      assert.isTrue(agree(exportManifest("main", state)), `seed ${seed}`)
    }
  })

  it("takes and refuses what the parser does, wherever a document is changed", () => {
    const whole = document(everything)
    assert.isTrue(agree(whole))
    let [taken, refused] = [0, 0]
    for (const variant of variants(whole)) agree(variant) ? taken++ : refused++
    assert.isAbove(taken, 100)
    assert.isAbove(refused, 1_000)
  })

  it("says what every field means, and which value it has when it is left out", () => {
    const { $defs } = manifestJsonSchema() as { readonly $defs: Readonly<Record<string, Described>> }
    const resolve = (schema: Described = {}): Described =>
      schema.$ref === undefined ? schema : { ...$defs[schema.$ref.slice("#/$defs/".length)], ...schema }
    const project = resolve({ $ref: "#/$defs/ManifestProject" }).properties ?? {}
    const least: Readonly<Record<string, object>> = {
      Cache: { region: "local" },
      Database: { region: "local" },
      DatabaseBranch: { sourceEnvironment: "production", sourceDatabase: "main" },
      Queue: {},
      Cron: { schedule: "* * * * *", target: { kind: "queue", queue: "jobs" } }
    }
    for (const kind of kinds as ReadonlyArray<Kind>) {
      for (const key of Object.keys(kind.manifest?.fields ?? {})) {
        const { description, items, properties } = resolve(project[key])
        assert.isString(description, `${kind.name}: ${key}`)
        for (const [field, schema] of Object.entries(properties ?? resolve(items).properties ?? {})) {
          const described = resolve(schema)
          assert.isString(described.description, `${kind.name}: ${key}: ${field}`)
          const given = least[kind.name]
          if (given === undefined || field in given || !kind.fields.includes(field)) continue
          const [left, told] = [given, { ...given, [field]: described.default }].map((spec) =>
            Object(Result.getOrUndefined(completeSpec(kind, spec)))
          )
          // A size has a default in requests; a manifest names it.
          if (!(resolve(items).required ?? []).includes(field))
            assert.deepStrictEqual(
              described.default === undefined ? undefined : told[field],
              left[field],
              `${kind.name}: ${key}: ${field}`
            )
        }
      }
    }
  })
})

interface Described {
  readonly $ref?: string
  readonly description?: string
  readonly default?: unknown
  readonly items?: Described
  readonly required?: ReadonlyArray<string>
  readonly properties?: Readonly<Record<string, Described>>
}

describe("the sections of a manifest", () => {
  it("are stated once each, by a kind or as not available", () => {
    const stated = (kinds as ReadonlyArray<Kind>).flatMap(({ manifest }) =>
      Object.keys(manifest?.fields ?? {})
    )
    const all = [...stated, ...unavailableSections]
    assert.strictEqual(new Set(all).size, all.length)
    assert.sameMembers(all, [...Object.keys(everything), "name", "slug", "runtimeClass", "previewData"])
  })

  it("are all typed in the document", () => {
    const whole = { ...base, previewData: "allowed", ...everything }
    const typed: { readonly [K in keyof ManifestProject]-?: unknown } = whole
    type Untyped = Exclude<keyof typeof whole, keyof ManifestProject>
    const allTyped: [Untyped] extends [never] ? true : never = true
    const project: ManifestProject = {
      name: "A",
      slug: "alpha",
      runtimeClass: "always-on",
      queues: [{ name: "jobs", consumer: { path: "/jobs" } }],
      crons: [{ name: "tick", environment: "production", schedule: "* * * * *", retry: { maxAttempts: 2 } }],
      databases: [{ name: "main", sku: "db-n1", region: "local", backup: { pitrDays: 3 } }]
    }
    const wrong: ReadonlyArray<Partial<ManifestProject>> = [
      // @ts-expect-error A consumer has a path.
      { queues: [{ name: "jobs", consumer: {} }] },
      // @ts-expect-error A cron job says where it is.
      { crons: [{ name: "tick", schedule: "* * * * *" }] },
      // @ts-expect-error Internal fields are not in manifests.
      { caches: [{ name: "one", region: "local", credentialVersion: 2 }] },
      // @ts-expect-error No kind has such a section.
      { toasters: [] }
    ]
    assert.isTrue(agree(document(project)))
    for (const one of wrong) assert.isFalse(agree(document(one)))
    assert.isDefined([typed, allTyped])
  })
})
