/** What is written about the command line is what the command line takes. */
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import type * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { loadCommands } from "#src/cli/commands.ts"

const root = fileURLToPath(new URL("../../", import.meta.url))
const svc = await Effect.runPromise(loadCommands)
const tree = Completions.fromCommand(svc)
type Described = typeof tree

/** Words that follow the name in sentences, and are no commands. */
const prose = new Set(
  "and backup command control failed is needs prints reads shows starts then uses with".split(" ")
)

const flagOf = (command: Described, word: string) => {
  const name = word.replace(/^--?/, "").replace(/=.*$/s, "")
  return command.flags.find(
    (flag) =>
      flag.name === name ||
      flag.aliases.includes(name) ||
      (flag.negation !== false && `no-${flag.name}` === name)
  )
}

/** The command that words name, and what is wrong with them. */
const follow = (words: ReadonlyArray<string>) => {
  let command: Described = tree
  let at = 0
  for (; at < words.length && command.subcommands.length > 0; at++) {
    const next = command.subcommands.find(({ name }) => name === words[at])
    if (next === undefined) break
    command = next
  }
  const rest = words.slice(at)
  const [next] = rest
  const faults =
    next !== undefined && command.subcommands.length > 0 && /^[a-z][a-z-]*$/.test(next)
      ? [`has no command "${next}"`]
      : rest
          .filter((word) => /^--[a-z]/.test(word) && !/^--(help|version)$/.test(word))
          .filter((word) => flagOf(command, word) === undefined)
          .map((word) => `has no flag ${word}`)
  return { command, rest, faults }
}

/** Each `svc ...` of a text, up to what ends it in a sentence or a line of a shell. */
const mentions = (text: string): ReadonlyArray<ReadonlyArray<string>> =>
  [...text.matchAll(/(?<![\w./$@-])svc (?:-- )?([a-z][^\n`"';|)<>,:$]*)/g)].map(([, words = ""]) =>
    words.replace(/[.\s]+$/, "").split(/\s+/)
  )

const textsIn = (folder: string): ReadonlyArray<string> =>
  fs
    .readdirSync(path.join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(ts|mjs|md|ya?ml|sh|sql)$/.test(name))
    .map((name) => path.join(folder, name))

it("every command that the documentation, the examples and the messages name is there, with its flags", () => {
  const files = ["README.md", ...["docs", "examples", "src", "schemas", "reconcilers"].flatMap(textsIn)]
  let count = 0
  const faults = files.flatMap((file) =>
    mentions(fs.readFileSync(path.join(root, file), "utf8")).flatMap((words) => {
      if (prose.has(words[0] ?? "")) return []
      count++
      return follow(words).faults.map((fault) => `${file}: svc ${words.join(" ")}: ${fault}`)
    })
  )
  assert.deepStrictEqual(faults, [])
  assert.isAbove(count, 100)
})

/** Words as a shell makes them, as far as examples go. */
const shellWords = (line: string) =>
  [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, plain]) => single ?? double ?? plain ?? ""
  )

const examplesOf = (command: Command.Command.Any): ReadonlyArray<string> => [
  ...command.examples.map((example) => example.command),
  ...command.subcommands.flatMap(({ commands }) => commands.flatMap(examplesOf))
]

/** What is wrong with a line of a shell that begins with svc: its command, its flags, or how many arguments it gives. */
const faultsOf = (line: string): ReadonlyArray<string> => {
  const [program, ...words] = shellWords(line)
  if (program !== "svc") return ["is not svc"]
  const { command, rest, faults } = follow(words)
  const given: Array<string> = []
  for (let at = 0; at < rest.length; at++) {
    const word = rest[at] ?? ""
    if (word === "--") {
      given.push(...rest.slice(at + 1))
      break
    }
    const flag = word.startsWith("-") ? flagOf(command, word) : undefined
    if (flag === undefined) given.push(word)
    else if (flag.type._tag !== "Boolean" && !word.includes("=")) at++
  }
  const required = command.arguments.filter((argument) => argument.required && !argument.variadic)
  const isOpen = command.arguments.some(({ variadic }) => variadic)
  return [
    ...faults,
    ...(command.subcommands.length > 0 ? ["names a group of commands"] : []),
    ...(given.length < required.length ? ["gives too few arguments"] : []),
    ...(!isOpen && given.length > command.arguments.length ? ["gives too many arguments"] : [])
  ]
}

it("every example of the help has the arguments that its command takes", () => {
  const examples = examplesOf(svc)
  assert.isAbove(examples.length, 5)
  for (const example of examples)
    assert.deepStrictEqual(faultsOf(example.replace(/^.*\| /, "").replace(/ <.*$/, "")), [], example)
})

const Workflow = Schema.Struct({
  on: Schema.Struct({
    pull_request: Schema.Struct({ types: Schema.Array(Schema.String) }),
    push: Schema.Struct({ branches: Schema.Array(Schema.String) })
  }),
  jobs: Schema.Record(
    Schema.String,
    Schema.Struct({
      if: Schema.String,
      "runs-on": Schema.String,
      environment: Schema.String,
      steps: Schema.Array(
        Schema.Union([Schema.Struct({ run: Schema.String }), Schema.Struct({ uses: Schema.String })])
      )
    })
  )
})

it("the example of a workflow plans pull requests, applies what is merged, and calls commands as they are", () => {
  const text = fs.readFileSync(path.join(root, "examples/github-workflow/svc.yml"), "utf8")
  const { on, jobs } = Schema.decodeUnknownSync(Workflow)(parse(text))
  assert.includeMembers([...on.pull_request.types], ["opened", "synchronize", "reopened", "closed"])
  assert.deepStrictEqual(on.push.branches, ["main"])
  const lines = Object.entries(jobs).flatMap(([job, { steps }]) =>
    steps
      .flatMap((step) => ("run" in step ? [step.run] : []))
      .flatMap((run) => [
        ...run
          .replaceAll(/(\|\||\\)\n\s*/g, "$1 ")
          .matchAll(/(?:^|\|\| +|\$\()\s*(svc .*?)(?= \|\||\)"| > | \| |$)/gm)
      ])
      .map(([, line = ""]) => [job, line] as const)
  )
  for (const [job, line] of lines) assert.deepStrictEqual(faultsOf(line), [], `${job}: ${line}`)
  const called = lines.map(
    ([job, line]) =>
      `${job}: ${line
        .split(" ")
        .slice(0, 3)
        .join(" ")
        .replace(/ "?-?-?.?\$.*| -.*/, "")}`
  )
  assert.includeMembers(called, [
    "preview: svc plan",
    "preview: svc previews update",
    "preview: svc previews create",
    "preview: svc previews get",
    "fork: svc previews create",
    "close: svc previews close",
    "apply: svc apply"
  ])
})

it("every command that deletes, revokes or ends something takes --yes", () => {
  const ending = new Set([
    "delete",
    "rm",
    "remove",
    "revoke",
    "purge",
    "restore",
    "promote",
    "abandon",
    "cancel",
    "down"
  ])
  const without = (command: Described, at: ReadonlyArray<string>): ReadonlyArray<string> =>
    command.subcommands.flatMap((one) => {
      const here = [...at, one.name]
      if (one.subcommands.length > 0) return without(one, here)
      return ending.has(one.name) && flagOf(one, "--yes") === undefined ? [here.join(" ")] : []
    })
  assert.deepStrictEqual(without(tree, []), [])
})
