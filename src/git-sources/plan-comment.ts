/**
 * A plan as a pull request shows it. Whoever reads the repository reads this: it names resources and fields, and tells no
 * values. Words of a manifest stand in it as code, so that they address nobody and format nothing.
 */
import type { CommitStatus } from "#src/git/ForgeClient.ts"
import type { PlannedChange } from "#src/manifest/change.ts"
import type { Comparison } from "#src/manifest/view.ts"

export interface PlanWords {
  readonly state: CommitStatus["state"]
  /** One line. */
  readonly description: string
  /** Markdown. */
  readonly text: string
}

interface About {
  readonly source: string
  readonly path: string
  readonly commit: string
  readonly ref: string
  readonly reviewed: boolean
  readonly billingActive: boolean
}

/** Of each group that loses nothing, and fields of each change. */
const mostEntries = 25
const mostFields = 8
const longestWord = 300
/** Characters; forges take 65,536 of a comment. */
const longestText = 20_000

export const code = (text: string, most = longestWord): string => {
  const line = text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}`]/gu, " ").trim()
  return `\`${line.length > most ? `${line.slice(0, most)}…` : line}\``
}

/** What each of so many plans may take of a comment. */
export const roomOf = (plans: number): number => Math.floor(longestText / plans)

const cut = (text: string, room: number): string =>
  text.length > room
    ? `${text.slice(0, room).replace(/\n[^\n]*$/, "")}\n\nand more. A plan that is not shown as a whole was reviewed by nobody.`
    : text

const listed = (lines: ReadonlyArray<string>, most = mostEntries): ReadonlyArray<string> => [
  ...lines.slice(0, most).map((line) => `- ${line}`),
  ...(lines.length > most ? [`- and ${lines.length - most} more`] : [])
]

const headings = {
  create: "Create",
  update: "Update",
  replace: "Replace: deleted with what is in it, and made again",
  delete: "Delete"
} as const

const changeText = ({ address, action, patch, requires }: PlannedChange): string => {
  const fields = action === "update" || action === "replace" ? patch.filter(({ op }) => op !== "test") : []
  const named = fields.slice(0, mostFields).map(({ path }) => code(path))
  return [
    code(address),
    ...(named.length === 0 ? [] : [`: ${named.join(", ")}`]),
    ...(fields.length > mostFields ? [` and ${fields.length - mostFields} more`] : []),
    ...(requires.role === "owner" ? [" (only an owner may)"] : [])
  ].join("")
}

/** `effects`: the changes that do something. */
export const planWords = (
  about: About,
  { blockers, warnings, summary }: Comparison,
  effects: ReadonlyArray<PlannedChange>
): PlanWords => {
  const { source, path, commit, ref, reviewed, billingActive } = about
  const { create, update, replace, delete: gone } = summary
  const counts = `${create} to create, ${update} to update, ${replace} to replace, ${gone} to delete`
  const ofOwner = effects.some(({ requires }) => requires.role === "owner")
  const isPaid = effects.some(({ requires }) => requires.billing)
  // What is lost comes first, and every one of it.
  const groups = (["delete", "replace", "update", "create"] as const).flatMap((action) => {
    const some = effects.filter((change) => change.action === action)
    const most = action === "delete" || action === "replace" ? some.length : mostEntries
    return some.length === 0 ? [] : [`\n${headings[action]}:\n`, ...listed(some.map(changeText), most)]
  })
  const faults = blockers.map(
    ({ message, pointer, line }) =>
      `${line === undefined ? "" : `line ${line}, `}${code(pointer === "" ? "/" : pointer)}: ${code(message)}`
  )
  const notes = [
    ...(isPaid
      ? [`It takes active billing${billingActive ? "" : ", which the organization does not have"}.`]
      : []),
    blockers.length > 0
      ? "Merging does not apply it as long as it is blocked."
      : ofOwner
        ? "Merging does not apply it: an owner has to."
        : reviewed
          ? `Merging into ${code(ref)} applies exactly this, or nothing.`
          : `Merging into ${code(ref)} applies what the manifest says then.`
  ]
  const text = [
    `**Plan** of ${code(source)}, ${code(path)} at ${code(commit.slice(0, 12))}: ${effects.length === 0 ? "nothing to change" : counts}.`,
    ...groups,
    ...(faults.length === 0 ? [] : ["\nBlocked:\n", ...listed(faults)]),
    ...(warnings.length === 0
      ? []
      : ["\nWarnings:\n", ...listed(warnings.map(({ message }) => code(message)))]),
    ...(effects.length === 0 && blockers.length === 0 ? [] : ["", notes.join(" ")])
  ].join("\n")
  return {
    state: blockers.length > 0 ? "failure" : "success",
    description:
      blockers.length > 0
        ? `Blocked: ${blockers[0]?.message}`
        : effects.length === 0
          ? "Nothing to change"
          : counts,
    text
  }
}

/** Why there is no plan. */
export const noPlan = (
  state: CommitStatus["state"],
  source: string,
  why: string,
  faults: ReadonlyArray<{ readonly pointer: string; readonly message: string; readonly line?: number }> = [],
  /** What to run to get one. */
  command?: string
): PlanWords => ({
  state,
  description: why,
  text: [
    `**Plan** of ${code(source)}: ${code(why)}${command === undefined ? "" : `: ${code(command)}`}`,
    ...(faults.length === 0 ? [] : [""]),
    ...listed(
      faults.map(
        ({ pointer, message, line }) =>
          `${line === undefined ? "" : `line ${line}, `}${code(pointer === "" ? "/" : pointer)}: ${code(message)}`
      )
    )
  ].join("\n")
})

/** Several sources may be kept from one repository: the worst is the status of all. */
export const together = (all: ReadonlyArray<PlanWords>): PlanWords | undefined => {
  const order = ["error", "failure", "pending", "success"] as const
  const [worst] = [...all].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state))
  const room = roomOf(all.length)
  return worst && { ...worst, text: all.map(({ text }) => cut(text, room)).join("\n\n") }
}
