/**
 * A Dockerfile (Dockerfile reference of Docker, frontend 1) as data: stages with the instructions that are carried out
 * here. What is not is refused by its name and line; nothing is left out in silence.
 */
import { createRequire } from "node:module"
import type * as DockerfileAst from "dockerfile-ast"
import type { Instruction } from "dockerfile-ast"
import * as Result from "effect/Result"
import type { DockerfileStage } from "#schemas/build-plan.ts"
import { parseImage } from "#src/executions/image.ts"
import { PlanRefused } from "../plan-refused.ts"
import { expand, TooLong } from "./expand.ts"

type Done = DockerfileStage["instructions"][number]

/** 37 files, for those who have a Dockerfile. */
let loaded: typeof DockerfileAst | undefined
const library = (): typeof DockerfileAst => {
  loaded ??= createRequire(import.meta.url)("dockerfile-ast") as typeof DockerfileAst
  return loaded
}

class Refused extends Error {}
const refuse = (line: number, why: string): never => {
  throw new Refused(`line ${line}: ${why}`)
}

const mostInstructions = 200
/** Each is a container. */
const mostStages = 16
const mostVariables = 1_000
/** Letters of all stages, in which stages on top of others hold what these do. */
const longestPlan = 512 * 1024

/** What says nothing about how the image is built, or what the platform decides. */
const ignored: ReadonlySet<string> = new Set(["EXPOSE", "LABEL", "MAINTAINER"])

interface Stage {
  readonly name: string | undefined
  readonly from: string
  readonly instructions: ReadonlyArray<Done>
}

export const parseDockerfile = (text: string): Result.Result<ReadonlyArray<DockerfileStage>, PlanRefused> => {
  try {
    return Result.succeed(stagesOf(text))
  } catch (error) {
    if (!(error instanceof Refused || error instanceof TooLong)) throw error
    return Result.fail(
      new PlanRefused({ code: "dockerfile_unsupported", message: `Dockerfile, ${error.message}` })
    )
  }
}

const stagesOf = (text: string): ReadonlyArray<DockerfileStage> => {
  const all = library().DockerfileParser.parse(text).getInstructions()
  if (all.length > mostInstructions) refuse(1, `has more than ${mostInstructions} instructions`)
  const stages: Array<Stage> = []
  const defaults = new Map<string, string>()
  let open:
    | { readonly name: string | undefined; readonly from: string; readonly instructions: Array<Done> }
    | undefined
  for (const instruction of all) {
    const line = instruction.getRange().start.line + 1
    const keyword = instruction.getKeyword()
    if (keyword === "FROM") {
      if (open !== undefined) stages.push(open)
      open = fromOf(instruction, line, stages, defaults)
    } else if (ignored.has(keyword)) continue
    else if (open === undefined) {
      if (keyword !== "ARG") return refuse(line, `${keyword} comes before FROM`)
      for (const [name, value] of pairsOf(instruction)) defaults.set(name, value ?? "")
    } else open.instructions.push(doneOf(instruction, keyword, line, stages, defaults))
  }
  if (open === undefined) return refuse(1, "has no FROM")
  stages.push(open)
  if (stages.length > mostStages) refuse(1, `has more than ${mostStages} stages`)
  const plan = stages.map(({ from, instructions }) => ({ from, instructions }))
  if (JSON.stringify(plan).length > longestPlan) refuse(1, "is too long with all of its stages")
  const variables = plan.flatMap(({ instructions }) =>
    instructions.map((one) => (one.do === "env" || one.do === "arg" ? one.values.length : 0))
  )
  if (variables.reduce((sum, count) => sum + count, 0) > mostVariables)
    refuse(1, `has more than ${mostVariables} variables`)
  return plan
}

const wordsOf = (instruction: Instruction) => instruction.getArguments().map((one) => one.getValue())
const flagsOf = (instruction: Instruction) =>
  instruction instanceof library().ModifiableInstruction
    ? instruction.getFlags().map((flag) => [flag.getName(), flag.getValue() ?? ""] as const)
    : []
/** Its arguments without the flags, with continued lines joined. */
const textOf = (instruction: Instruction) => {
  let text = (instruction.getArgumentsContent() ?? "").trim()
  for (const [name] of flagsOf(instruction)) text = text.replace(new RegExp(`^--${name}(=\\S*)?\\s*`), "")
  return text
}
const pairsOf = (instruction: Instruction): ReadonlyArray<readonly [string, string | null]> =>
  instruction instanceof library().PropertyInstruction
    ? instruction.getProperties().map((one) => [one.getName(), one.getValue()])
    : []

const fromOf = (
  instruction: Instruction,
  line: number,
  stages: ReadonlyArray<Stage>,
  defaults: ReadonlyMap<string, string>
) => {
  for (const [name] of flagsOf(instruction)) refuse(line, `FROM --${name} is not done here`)
  const [image = "", as, name] = wordsOf(instruction)
  const named = as?.toUpperCase() === "AS" ? name?.toLowerCase() : undefined
  const wanted = expand(image, defaults)
  const parent = stages.find((stage) => stage.name === wanted.toLowerCase())
  // A stage on top of another one begins with all that this one does.
  if (parent !== undefined) return { name: named, from: parent.from, instructions: [...parent.instructions] }
  return { name: named, from: imageOf(wanted, line, "FROM"), instructions: [] }
}

const imageOf = (text: string, line: number, what: string): string => {
  const parsed = parseImage(text)
  if (text === "scratch") refuse(line, `${what} scratch is not done here`)
  // Such names are of images on the host, whoever they belong to.
  if (parsed === undefined) return refuse(line, `${what} names no image: ${text.slice(0, 100)}`)
  return text
}

/** Also behind a command, but neither a here-string nor a number that is shifted. */
const hereDocument = /(?<!<)<<(?!<)-?\s*["'\\]?[A-Za-z_]/

const commandOf = (instruction: Instruction, line: number): ReadonlyArray<string> => {
  const text = textOf(instruction)
  if (text === "") refuse(line, `${instruction.getKeyword()} says nothing`)
  const list = listOf(text)
  if (list === undefined && hereDocument.test(text))
    refuse(line, `${instruction.getKeyword()} with a here-document is not done here`)
  return list ?? ["/bin/sh", "-c", text]
}

/** The JSON form: a list of texts. */
const listOf = (text: string): ReadonlyArray<string> | undefined => {
  if (!text.startsWith("[")) return undefined
  try {
    const parsed: unknown = JSON.parse(text)
    return Array.isArray(parsed) && parsed.every((one): one is string => typeof one === "string")
      ? parsed
      : undefined
  } catch {
    return undefined
  }
}

const doneOf = (
  instruction: Instruction,
  keyword: string,
  line: number,
  stages: ReadonlyArray<Stage>,
  defaults: ReadonlyMap<string, string>
): Done => {
  const flags = flagsOf(instruction)
  switch (keyword) {
    case "RUN": {
      for (const [name] of flags) refuse(line, `RUN --${name} is not done here`)
      return { do: "run", line, command: commandOf(instruction, line) }
    }
    case "CMD":
    case "ENTRYPOINT": {
      const command = commandOf(instruction, line)
      return { do: keyword === "CMD" ? "cmd" : "entrypoint", line, command }
    }
    case "ENV":
      return {
        do: "env",
        line,
        values: pairsOf(instruction).map(([name, value]) => ({ name, value: value ?? "" }))
      }
    case "ARG":
      return {
        do: "arg",
        line,
        values: pairsOf(instruction).map(([name, value]) => ({
          name,
          value: value ?? defaults.get(name) ?? ""
        }))
      }
    case "WORKDIR":
      return { do: "workdir", line, folder: textOf(instruction) }
    case "USER":
      return { do: "user", line, user: textOf(instruction) }
    case "ADD":
    case "COPY":
      return copyOf(instruction, keyword, line, stages)
    default:
      return refuse(line, `${keyword} is not done here`)
  }
}

const copyOf = (
  instruction: Instruction,
  keyword: string,
  line: number,
  stages: ReadonlyArray<Stage>
): Done => {
  let from: { readonly stage: number } | { readonly image: string } | null = null
  let owner: string | null = null
  for (const [name, value] of flagsOf(instruction)) {
    if (name === "chown") owner = value
    else if (name === "from" && keyword === "COPY") from = originOf(value, line, stages)
    else if (name !== "link") refuse(line, `${keyword} --${name} is not done here`)
  }
  const text = textOf(instruction)
  if (/<<-?\s*["'\w]/.test(text)) refuse(line, `${keyword} with a here-document is not done here`)
  const words = listOf(text) ?? text.split(/\s+/)
  const target = words.at(-1)
  const sources = words.slice(0, -1)
  if (target === undefined || sources.length === 0)
    return refuse(line, `${keyword} needs a source and a target`)
  for (const source of sources) {
    if (/^[a-z][a-z0-9+.-]*:|^git@|\$/i.test(source))
      refuse(line, `${keyword} takes files of the source only, not ${source.slice(0, 100)}`)
    if (keyword === "ADD" && /\.(tar|tgz|tbz2|txz|zip|tar\.\w+)$/i.test(source))
      refuse(line, "ADD of an archive is not done here")
    if (source.split("/").includes("..")) refuse(line, `${keyword} leads out of the source`)
  }
  return { do: "copy", line, from, sources, target, owner }
}

const originOf = (text: string, line: number, stages: ReadonlyArray<Stage>) => {
  const stage = /^\d+$/.test(text)
    ? Number(text)
    : stages.findIndex(({ name }) => name === text.toLowerCase())
  if (stage >= 0 && stage < stages.length) return { stage }
  if (stage !== -1) return refuse(line, `COPY --from=${text} names no stage before it`)
  return { image: imageOf(text, line, "COPY --from") }
}
