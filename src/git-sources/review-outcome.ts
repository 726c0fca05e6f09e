/** What became of a plan that a pull request showed, once that was merged. */
import type { PlanDigest } from "#src/manifest/digest.ts"
import type { Decision, Review } from "./Reviews.ts"

/** After that the ref is seen where a merge has brought it. */
const seenByMs = 60_000
/** Addresses that are named. */
const mostNamed = 10

/** Whether a merged one has nothing left to do, rather than that its commit is not seen at the ref yet. */
export const isDone = ({ mergedMs }: Review, isNews: boolean): boolean =>
  mergedMs !== null && (isNews || mergedMs > seenByMs)

export const applied = ({ pullRequest }: Review, commit: string): Decision => ({
  pullRequest,
  outcome: "applied",
  message: `at ${commit.slice(0, 12)}`
})

/** `planId`: of the plan that is kept for people. */
export const notApplied = ({ pullRequest }: Review, why: string, planId?: string): Decision => ({
  pullRequest,
  outcome: "not_applied",
  message: planId === undefined ? why : `svc apply --plan ${planId} applies what is planned now. ${why}`
})

/** How what was shown and what would be done now differ. */
export const movedFrom = ({ parts }: Review, { parts: now }: PlanDigest): string => {
  const said = (word: string, addresses: ReadonlyArray<string>) =>
    addresses.length === 0
      ? []
      : [
          `${word} ${addresses.slice(0, mostNamed).join(", ")}${addresses.length > mostNamed ? ` and ${addresses.length - mostNamed} more` : ""}`
        ]
  const [before, after] = [Object.keys(parts), Object.keys(now)]
  const differences = [
    ...said(
      "changes otherwise:",
      after.filter((address) => parts[address] !== undefined && parts[address] !== now[address])
    ),
    ...said(
      "changes besides:",
      after.filter((address) => parts[address] === undefined)
    ),
    ...said(
      "changes no more:",
      before.filter((address) => now[address] === undefined)
    )
  ]
  return `It is not what was shown: the plan ${differences.length === 0 ? "has other faults" : differences.join("; ")}`
}
