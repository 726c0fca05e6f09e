/** `npm run test:faults`: plays campaigns, each in a run of vitest on the file that declares it. */
import { spawnSync } from "node:child_process"
import { randomInt } from "node:crypto"
import * as path from "node:path"
import { parseArgs } from "node:util"
import * as Schema from "effect/Schema"
import { CampaignRun, titleOf } from "./campaign.ts"
import { type Declaration, declarations, root } from "./declarations.ts"

const usage = `Usage: npm run test:faults -- [name...] [--minutes N] [--seed S]

Plays the named campaigns, or all of them, one after another.

  --minutes N  for how long rounds of each begin (2)
  --seed S     the seed of the first round, else a random one. Without --minutes that round alone is played
  --help       this text
`

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { minutes: { type: "string" }, seed: { type: "string" }, help: { type: "boolean" } }
})
const numberOf = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : Number(text)

const vitest = path.join(root, "node_modules/vitest/vitest.mjs")
const encode = Schema.encodeSync(CampaignRun)

/** Whether every round kept what the campaign states. */
const plays = ({ name, file }: Declaration, seed: number, minutes: number): boolean => {
  process.stdout.write(`\ncampaign ${name}, seed ${seed}, ${minutes} minutes\n`)
  const { status } = spawnSync(process.execPath, [vitest, "run", file, "-t", titleOf(name)], {
    cwd: root,
    stdio: "inherit",
    env: { ...process.env, SVC_CAMPAIGN: encode({ name, seed, minutes }) }
  })
  return status === 0
}

const main = (): number => {
  const all = declarations()
  const minutes = numberOf(values.minutes) ?? (values.seed === undefined ? 2 : 0)
  const seed = numberOf(values.seed) ?? randomInt(1, 2 ** 31 - 2 ** 20)
  const unknown = positionals.filter((name) => !all.some((one) => one.name === name))
  const wrong = unknown.length > 0 || !Number.isSafeInteger(seed) || !(minutes >= 0)
  if (values.help === true || wrong) {
    const width = Math.max(...all.map(({ name }) => name.length))
    const list = all.map(({ name, statement }) => `  ${name.padEnd(width)}  ${statement}\n`)
    process.stdout.write(`${usage}\nCampaigns:\n${list.join("")}`)
    if (unknown.length > 0) process.stderr.write(`\nThere is no campaign "${unknown.join('", "')}"\n`)
    return wrong ? 2 : 0
  }
  const chosen = positionals.length === 0 ? all : all.filter(({ name }) => positionals.includes(name))
  const failed = chosen.filter((one) => !plays(one, seed, minutes))
  for (const { name } of failed)
    process.stderr.write(`failed: ${name} (the seed to play again is in its message above)\n`)
  return failed.length === 0 ? 0 : 1
}

process.exitCode = main()
