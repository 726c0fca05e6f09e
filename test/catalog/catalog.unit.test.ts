import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Catalog, executionMicroUsd } from "#src/catalog/Catalog.ts"
import { builtIn } from "#src/catalog/content.ts"
import { AppConfig } from "#src/config.ts"

const from = (text: string | undefined) =>
  Effect.gen(function* () {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
      (made) => Effect.sync(() => fs.rmSync(made, { recursive: true }))
    )
    const file = path.join(folder, "catalog.yaml")
    if (text !== undefined) fs.writeFileSync(file, text)
    const catalog = Catalog.layer.pipe(Layer.provide(AppConfig.layerFrom({ SVC_CATALOG: file })))
    return yield* Effect.provide(Catalog, catalog)
  }).pipe(Effect.scoped)

it.live("without a file the catalogue is the one that is built in", () =>
  Effect.gen(function* () {
    const catalog = yield* Effect.provide(Catalog, Catalog.layer.pipe(Layer.provide(AppConfig.layerWith({}))))
    assert.deepStrictEqual(catalog, builtIn)
    assert.deepStrictEqual(
      catalog.regions.map(({ id }) => id),
      ["local"]
    )
  })
)

it.live("a file replaces what it names, in YAML or JSON, and leaves the rest", () =>
  Effect.gen(function* () {
    const catalog = yield* from(`
regions:
  - { id: local, name: Cellar, city: Zurich, country: CH, continent: Europe }
executions:
  limits:
    memoryMb: { min: 64, max: 512 }
    maxActiveExecutionsPerProject: null
  prices:
    shared: { perVcpuSecondUsd: 0.001, perMibSecondUsd: 0 }
`)
    assert.deepInclude(catalog.regions[0], { name: "Cellar", city: "Zurich" })
    assert.deepStrictEqual(catalog.executions, {
      ...builtIn.executions,
      limits: {
        ...builtIn.executions.limits,
        memoryMb: { min: 64, max: 512 },
        maxActiveExecutionsPerProject: null
      },
      prices: { ...builtIn.executions.prices, shared: { perVcpuSecondUsd: 0.001, perMibSecondUsd: 0 } }
    })
    const json = yield* from(JSON.stringify({ executions: { cpuKinds: ["shared"] } }))
    assert.deepStrictEqual(json.executions.cpuKinds, ["shared"])
    assert.deepStrictEqual(yield* from(""), builtIn)
  })
)

it.live("a file that cannot be used stops the start with one line that names every fault", () =>
  Effect.gen(function* () {
    const faults: ReadonlyArray<readonly [text: string | undefined, ...said: ReadonlyArray<RegExp>]> = [
      [undefined, /no such file/],
      ["regions: [", /line 1: /],
      ["executions:\n  limits: 3", /\/executions\/limits /],
      [
        "prices: 1\nexecutions: { prices: { shared: { perVcpuSecondUsd: -1, perMibSecondUsd: 0 } } }",
        /\/prices /,
        /\/executions\/prices\/shared\/perVcpuSecondUsd /
      ],
      ["executions: { limits: { cpus: { min: 2, max: 1 } } }", /\/executions\/limits\/cpus min is more/],
      ["regions: []", /\/regions/],
      [
        "regions: [{ id: Moon!, name: M, city: '', country: '', continent: '' }]",
        /\/regions\/0\/id .*lowercase letters/
      ],
      [
        "regions: [{ id: any, name: M, city: '', country: '', continent: '' }]",
        /\/regions\/0\/id "any" is reserved/
      ],
      [
        `regions: [${Array(2).fill("{ id: local, name: M, city: '', country: '', continent: '' }").join()}]`,
        /"local" is there twice/
      ],
      ["a: &a [1]\nb: *a", /alias/]
    ]
    for (const [text, ...said] of faults) {
      const error = yield* Effect.flip(from(text))
      assert.strictEqual(error._tag, "CatalogError")
      for (const part of said) assert.match(error.message, part)
      assert.notInclude(error.message, "\n")
      assert.include(error.message, "SVC_CATALOG")
    }
  })
)

it("a price is time by size, rounded up to a millionth of a dollar", () => {
  const priced = {
    ...builtIn,
    executions: {
      ...builtIn.executions,
      prices: {
        shared: { perVcpuSecondUsd: 0.0000011, perMibSecondUsd: 0.000000001 },
        performance: { perVcpuSecondUsd: 1, perMibSecondUsd: 0 }
      }
    }
  }
  const size = { cpuKind: "shared", cpus: 2, memoryMb: 100 } as const
  assert.strictEqual(executionMicroUsd(priced, size, 0), 0)
  assert.strictEqual(executionMicroUsd(priced, size, 1), 3)
  assert.strictEqual(executionMicroUsd(priced, size, 10), 23)
  assert.strictEqual(executionMicroUsd(priced, size, -5), 0)
  assert.strictEqual(executionMicroUsd(priced, { ...size, cpuKind: "performance" }, 0.1), 200_000)
})
