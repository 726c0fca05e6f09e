/** What is written about the command line is what the command line takes. */
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import type * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Effect from "effect/Effect"
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
    .filter((name) => /\.(ts|mjs|md|yaml|sh|sql)$/.test(name))
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

it("every example of the help has the arguments that its command takes", () => {
  const examples = examplesOf(svc)
  assert.isAbove(examples.length, 5)
  for (const example of examples) {
    const words = shellWords(example.replace(/^.*\| /, "").replace(/ <.*$/, ""))
    assert.strictEqual(words[0], "svc", example)
    const { command, rest, faults } = follow(words.slice(1))
    assert.deepStrictEqual([faults, command.subcommands], [[], []], example)
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
    assert.isAtLeast(given.length, required.length, example)
    if (!command.arguments.some(({ variadic }) => variadic))
      assert.isAtMost(given.length, command.arguments.length, example)
  }
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
