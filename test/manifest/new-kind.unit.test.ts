/** A kind that states its section needs nothing else to be read, planned, exported and described. */
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { vi } from "vitest"
import { inputOf, withDefault } from "#schemas/input.ts"
import { defineKind, type Kind } from "#schemas/kind.ts"
import { listSection, usualEnvironment } from "#schemas/manifest-mapping.ts"

/** The program with one more kind, loaded anew: modules that this worker has loaded before know the kinds without it. */
const withToaster = async () => {
  vi.resetModules()
  vi.doMock(import("#schemas/index.ts"), addToaster)
  const [
    { exportManifest, toYaml },
    { manifestJsonSchema },
    { parseManifest },
    { makePlan },
    { applySteps }
  ] = await Promise.all([
    import("#src/manifest/export.ts"),
    import("#src/manifest/json-schema.ts"),
    import("#src/manifest/parse.ts"),
    import("#src/manifest/plan.ts"),
    import("./state.ts")
  ])
  return { exportManifest, toYaml, manifestJsonSchema, parseManifest, makePlan, applySteps }
}
let program: Awaited<ReturnType<typeof withToaster>>

beforeAll(async () => {
  program = await withToaster()
})
// The files that this worker runs next get the program as it is.
afterAll(() => {
  vi.doUnmock(import("#schemas/index.ts"))
  vi.resetModules()
})

const addToaster = async (load: () => Promise<typeof import("#schemas/index.ts")>) => {
  const original = await load()
  const ToasterSpec = Schema.Struct({
    slots: withDefault(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 4 })), 2, "Slices at once"),
    colour: Schema.String,
    serial: withDefault(Schema.Int, 1)
  })
  const internal = ["serial"] as const
  const Toaster = defineKind({
    ...original.kinds[0],
    name: "Toaster",
    scope: "environment",
    spec: ToasterSpec,
    status: Schema.Struct({}),
    fields: Object.keys(ToasterSpec.fields),
    immutable: ["colour"],
    internal,
    manifest: listSection("toasters", "What makes toast", {
      environment: usualEnvironment,
      ...inputOf(ToasterSpec, internal).fields
    })
  })
  const kinds: ReadonlyArray<Kind> = [...original.kinds, Toaster]
  return {
    ...original,
    // To the compiler the list stays the one that it knows.
    kinds: kinds as unknown as typeof original.kinds,
    findKind: (name: string) => kinds.find((kind) => kind.name === name)
  }
}

const options = { prune: true, confirm: [], fingerprint: (text: string) => text, regions: ["local"] } as const
const source = `version: 1
organization: main
projects:
  - name: A
    slug: alpha
    runtimeClass: always-on
    toasters:
      - name: red
        colour: red
      - name: blue
        environment: preview
        slots: 3
        colour: blue
`
const read = (text: string) => {
  const parsed = program.parseManifest(text)
  return Result.isSuccess(parsed) ? parsed.success.manifest : assert.fail(JSON.stringify(parsed.failure))
}

it("a new kind is read, planned, exported and described without further code", () => {
  const { makePlan, applySteps, exportManifest, toYaml } = program
  const { steps, changes, blockers } = makePlan(read(source), [], options)
  assert.deepStrictEqual(blockers, [])
  assert.includeMembers(
    changes.map(({ action, address }) => `${action} ${address}`),
    ["create alpha/preview/Toaster/blue", "create alpha/production/Toaster/red"]
  )
  const state = applySteps([], steps)
  assert.deepStrictEqual(state.find(({ name }) => name === "red")?.spec, {
    slots: 2,
    colour: "red",
    serial: 1
  })
  const exported = toYaml(exportManifest("main", state))
  assert.include(exported, "environment: production\n        slots: 2\n        colour: red\n")
  assert.notInclude(exported, "serial")
  const again = makePlan(read(exported), state, options)
  assert.deepStrictEqual([again.blockers, again.steps], [[], []])
})

it("what is wrong with its entries is refused at its place, by the parser as by the JSON Schema", () => {
  const parsed = program.parseManifest(source.replace("slots: 3", "slots: 5"))
  const faults = Result.isFailure(parsed) ? parsed.failure : assert.fail("it was taken")
  assert.deepStrictEqual(
    faults.map(({ pointer, line, column }) => [pointer, line, column]),
    [["/projects/0/toasters/1/slots", 12, 9]]
  )
  assert.include(
    JSON.stringify(program.manifestJsonSchema()),
    '"slots":{"type":"integer","minimum":1,"maximum":4,"description":"Slices at once","default":2}'
  )
})
