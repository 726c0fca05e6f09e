/** Things that nobody seems to need, and that take room or cost. */
import * as Effect from "effect/Effect"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import { Domain } from "#schemas/domain.ts"
import type { Finding } from "../finding.ts"
import { type Check, dayMs, findingOf, ofKind, spanInWords } from "../look.ts"
import { deleteBranch, removeDomain } from "../remedies.ts"

const forgottenMs = 14 * dayMs

const branches = ofKind(DatabaseBranch)
const domains = ofKind(Domain)

export const cost: Check = ({ now, resources }) =>
  Effect.sync(() => [
    ...branches(resources).flatMap(({ record, spec, status }): ReadonlyArray<Finding> => {
      const age = now - record.createdAt.getTime()
      const databaseId = spec.sourceDatabaseId ?? status?.sourceDatabaseId ?? undefined
      if (spec.expiresInDays !== null || age < forgottenMs) return []
      return [
        findingOf("cost", "lasting-branch", record, {
          severity: "info",
          summary: `The branch "${record.name}" is ${spanInWords(age)} old and never expires`,
          risk: "A copy of a whole database takes disk and memory, whether it is used or not.",
          evidence: { createdAt: record.createdAt.toISOString(), bytes: status?.totalBytes ?? null },
          remedy: databaseId === undefined ? null : deleteBranch(record, databaseId)
        })
      ]
    }),
    ...domains(resources).flatMap(({ record }): ReadonlyArray<Finding> => {
      const lapsed = record.conditions.find(({ reason }) => reason === "ClaimLapsed")
      return lapsed === undefined
        ? []
        : [
            findingOf("cost", "lapsed-domain", record, {
              severity: "info",
              summary: `The domain "${record.name}" was never led here`,
              risk: "It is looked at for ever, and somebody else may take the name.",
              evidence: { since: lapsed.lastTransitionAt },
              remedy: removeDomain(record)
            })
          ]
    })
  ])
