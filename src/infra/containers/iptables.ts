/**
 * The host's firewall, by iptables and ip6tables. Several processes, and programs that have rules of their own, change it
 * at the same time: a rule is looked for before it is added, and what belongs together is changed in one transaction.
 */
import { execFile } from "node:child_process"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { helperEnvironment } from "../host/helper-environment.ts"

export interface Rule {
  readonly table: "raw" | "mangle" | "nat" | "filter"
  readonly chain: string
  /** Matches and target, as the program takes them. */
  readonly rule: ReadonlyArray<string>
  /** It stands at the end of its chain instead of at the head. */
  readonly last?: true
}

export interface Firewall {
  /** What a program prints; undefined: it failed, or is not there. */
  readonly said: (
    program: "iptables" | "ip6tables" | "iptables-restore" | "ip6tables-restore" | "iptables-save",
    args: ReadonlyArray<string>,
    input?: string
  ) => Promise<string | undefined>
}

/** `within`: a command that runs another one in a network of its own. */
export const firewall = (within: ReadonlyArray<string> = []): Firewall => ({
  said: (program, args, input) =>
    new Promise((resolve) => {
      // What changes nothing waits for nobody.
      const patience = program === "iptables-save" ? [] : ["-w", "5"]
      const [command = program, ...rest] = [...within, program, ...patience, ...args]
      const child = execFile(
        command,
        rest,
        { timeout: 10_000, env: helperEnvironment(), maxBuffer: 64 * 1024 * 1024 },
        (error, stdout) => resolve(error === null ? stdout : undefined)
      )
      // A program that ends without reading all of it says so by its exit code.
      child.stdin?.once("error", () => {})
      child.stdin?.end(input)
    })
})

const tables = (lines: ReadonlyArray<readonly [Rule["table"], line: string]>): string =>
  [...new Set(lines.map(([table]) => table))]
    .flatMap((table) => [
      `*${table}`,
      ...lines.flatMap(([of, line]) => (of === table ? [line] : [])),
      "COMMIT",
      ""
    ])
    .join("\n")

/** Takes all of these lines or, when one of them cannot be taken, none of that table. */
export const restore = async (
  { said }: Firewall,
  program: "iptables" | "ip6tables",
  lines: ReadonlyArray<readonly [Rule["table"], line: string]>
): Promise<boolean> =>
  lines.length === 0 || (await said(`${program}-restore`, ["--noflush"], tables(lines))) !== undefined

/** Looks and changes again when another process has changed the same rules meanwhile, so that nothing was changed. */
export const repeatedUntilDone = (attempt: Effect.Effect<boolean>): Effect.Effect<boolean> =>
  Effect.repeat(attempt, {
    until: (done) => done,
    schedule: Schedule.spaced("50 millis").pipe(Schedule.jittered),
    times: 9
  })

/** Puts the rules into their chains, and makes the chains, where they are missing. False: that cannot be done. */
export const ensureRules = async (
  host: Firewall,
  program: "iptables" | "ip6tables",
  rules: ReadonlyArray<Rule>,
  chains: ReadonlyArray<Pick<Rule, "table" | "chain">> = []
): Promise<boolean> => {
  // Mostly all of them are there, and one call tells.
  const checks = rules.map(({ table, chain, rule }) => [table, `-C ${chain} ${rule.join(" ")}`] as const)
  if (await restore(host, program, checks)) return true
  // One that is there already is refused.
  for (const { table, chain } of chains) await host.said(program, ["-t", table, "-N", chain])
  for (const { table, chain, rule, last } of rules) {
    if ((await host.said(program, ["-t", table, "-C", chain, ...rule])) !== undefined) continue
    const act = last ? "-A" : "-I"
    if ((await host.said(program, ["-t", table, act, chain, ...rule])) === undefined) return false
  }
  return true
}
