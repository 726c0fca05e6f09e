/** The catalogue in force: what is built in, with the parts that the operator's file replaces. Read once, at the start. */
import * as fs from "node:fs/promises"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import { parseDocument } from "yaml"
import type { CpuKind } from "#schemas/catalog.ts"
import { builtIn, type CatalogContent, CatalogFile, replaced } from "./content.ts"
import { settings } from "./settings.ts"

/** The file cannot be used. */
class CatalogError extends Schema.TaggedError<CatalogError>()("CatalogError", {
  message: Schema.String
}) {}

export class Catalog extends Context.Service<Catalog, CatalogContent>()("svc/catalog/Catalog") {
  static readonly layer = Layer.effect(
    Catalog,
    Effect.flatMap(settings, ({ file }) => (file === undefined ? Effect.succeed(builtIn) : read(file)))
  )
  static readonly layerBuiltIn = Layer.succeed(Catalog, builtIn)
}

export interface ExecutionSize {
  readonly cpuKind: CpuKind
  readonly cpus: number
  readonly memoryMb: number
}

/** What it costs to run something of this size so long, in millionths of a US dollar, rounded up. */
export const executionMicroUsd = (
  { executions }: CatalogContent,
  { cpuKind, cpus, memoryMb }: ExecutionSize,
  seconds: number
): number => {
  const { perVcpuSecondUsd, perMibSecondUsd } = executions.prices[cpuKind]
  const microUsd = (cpus * perVcpuSecondUsd + memoryMb * perMibSecondUsd) * Math.max(0, seconds) * 1_000_000
  // What binary fractions add at the end is not rounded up to a millionth of its own.
  return Math.ceil(microUsd - 1e-6)
}

const decode = Schema.decodeUnknownEffect(CatalogFile)
const format = SchemaIssue.makeFormatterStandardSchemaV1()

const read = Effect.fnUntraced(function* (file: string) {
  const wrong = (what: string) =>
    new CatalogError({ message: `The catalogue ${file} (SVC_CATALOG) cannot be used: ${what}` })
  const text = yield* Effect.tryPromise({
    try: () => fs.readFile(file, "utf8"),
    catch: (cause) => wrong(cause instanceof Error ? cause.message : String(cause))
  })
  // JSON is YAML as well.
  const document = parseDocument(text, { prettyErrors: false })
  const [fault] = document.errors
  if (fault !== undefined) {
    const line = text.slice(0, fault.pos[0]).split("\n").length
    return yield* wrong(`line ${line}: ${fault.message}`)
  }
  const said = yield* Effect.try({
    try: (): unknown => document.toJS({ maxAliasCount: 0 }),
    catch: () => wrong("it uses an alias; write the value again instead")
  })
  const decoded = yield* Effect.mapError(
    decode(said ?? {}, { errors: "all", onExcessProperty: "error" }),
    ({ issue }) =>
      wrong(
        format(issue)
          .issues.map(({ path = [], message }) => {
            const at = path.map((part) => (typeof part === "object" ? String(part.key) : String(part)))
            return `/${at.join("/")} ${message}`
          })
          .join("; ")
      )
  )
  const ids = decoded.regions?.map(({ id }) => id) ?? []
  const twice = ids.find((id, index) => ids.indexOf(id) !== index)
  if (twice !== undefined) return yield* wrong(`the region "${twice}" is there twice`)
  return replaced(decoded)
})
