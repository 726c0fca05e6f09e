/** Looks at one project: every category that is asked for, each by itself, so that one that fails hides no other. */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { BackupDestination } from "#schemas/backup-destination.ts"
import { kinds } from "#schemas/index.ts"
import { categoriesOf, type MaintenanceCategory, type MaintenanceSpec } from "#schemas/maintenance.ts"
import { answered } from "#src/engine/answered.ts"
import { type ListCursor, Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { makeBackupsCheck } from "./checks/backups.ts"
import { makeCapacityCheck } from "./checks/capacity.ts"
import { certificates } from "./checks/certificates.ts"
import { makeCostCheck } from "./checks/cost.ts"
import { drift } from "./checks/drift.ts"
import { makeSecurityCheck } from "./checks/security.ts"
import { versions } from "./checks/versions.ts"
import type { Finding } from "./finding.ts"
import type { Check, Look, Unknown } from "./look.ts"
import type { CategoryResult, NotJudged } from "./Runs.ts"

const pageSize = 500
/** Findings of a category that are kept. Who has more has one cause for them, and needs no longer list. */
const mostFindings = 1_000
const checkMs = 60_000

export interface Inspection {
  readonly categories: Readonly<Partial<Record<MaintenanceCategory, CategoryResult>>>
  readonly findings: ReadonlyArray<Finding>
  readonly notJudged: NotJudged
}

export const makeInspect = Effect.gen(function* () {
  const resources = yield* Resources
  const checks: Readonly<Record<MaintenanceCategory, Check>> = {
    backups: yield* makeBackupsCheck,
    capacity: yield* makeCapacityCheck,
    certificates,
    cost: yield* makeCostCheck,
    security: yield* makeSecurityCheck,
    versions,
    drift
  }

  const everything = Effect.fnUntraced(function* (orgId: string, projectId: string) {
    const all: Array<ResourceRecord> = []
    let after: ListCursor | undefined
    for (;;) {
      const page = yield* resources.list(orgId, { projectId }, pageSize, after)
      all.push(...page)
      const last = page.at(-1)
      if (page.length < pageSize || last === undefined) return all
      after = { createdAt: last.createdAt.toISOString(), uid: last.uid }
    }
  })

  const lookAt = Effect.fnUntraced(function* (
    orgId: string,
    projectId: string,
    environments: ReadonlyArray<string>
  ) {
    const [all, destinations] = yield* Effect.all(
      [everything(orgId, projectId), resources.listKind(orgId, BackupDestination.name, null)],
      { concurrency: 2 }
    )
    const placeOf = ({ kind, name, environment }: ResourceRecord) =>
      kind === "Environment" ? name : environment
    const isAsked = (record: ResourceRecord) => {
      const place = placeOf(record)
      return environments.length === 0 || place === null || environments.includes(place)
    }
    const asked = all.filter(isAsked)
    const isLeaving = ({ deletionRequestedAt }: ResourceRecord) => deletionRequestedAt !== null
    const look: Look = {
      orgId,
      now: yield* Clock.currentTimeMillis,
      resources: asked.filter((record) => !isLeaving(record)),
      elsewhere: all.filter((record) => !isAsked(record)),
      leaving: asked.filter(isLeaving),
      destinations: destinations.filter((record) => !isLeaving(record))
    }
    return look
  })

  return Effect.fn("maintenance.inspect")(function* (
    orgId: string,
    projectId: string,
    spec: Pick<MaintenanceSpec, "categories" | "environments">
  ) {
    const look = yield* lookAt(orgId, projectId, spec.environments)
    const results = yield* Effect.forEach(categoriesOf(spec), (category) =>
      Effect.suspend(() => checks[category](look)).pipe(
        answered(`look at ${category}`, checkMs),
        Effect.map((judged) => ({ category, ...bounded(judged) })),
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.failCause(cause)
            : Effect.as(Effect.logWarning(`maintenance could not look at ${category}`, cause), {
                category,
                findings: [],
                unknown: [],
                problem: "It could not be looked at; the next run tries again"
              })
        )
      )
    )
    const inspection: Inspection = {
      categories: Object.fromEntries(
        results.map(({ category, findings, problem }) => [category, { findings: findings.length, problem }])
      ),
      findings: results.flatMap(({ findings }) => findings),
      notJudged: {
        subjects: [...look.elsewhere, ...look.resources.filter(isUnreadable)].map(({ uid }) => uid),
        keys: results.flatMap(({ unknown }) => unknown)
      }
    }
    return inspection
  })
})

const specOf: ReadonlyMap<string, (spec: unknown) => Option.Option<unknown>> = new Map(
  kinds.map(({ name, spec }) => [name, Schema.decodeUnknownOption(spec)])
)

/** Checks of settings left it out: another release wrote it, or nobody can read it any more. */
const isUnreadable = ({ kind, spec }: ResourceRecord): boolean => {
  const decode = specOf.get(kind)
  return decode === undefined || Option.isNone(decode(spec))
}

const order = ["critical", "warning", "info"]

/** Each once, and of too many the gravest. */
const bounded = (judged: ReadonlyArray<Finding | Unknown>) => {
  const unknown = judged.flatMap((one) => ("unknown" in one ? [one.unknown] : []))
  const found = judged.flatMap((one) => ("unknown" in one ? [] : [one]))
  const once = [...new Map(found.map((finding) => [finding.key, finding])).values()]
  if (once.length <= mostFindings) return { findings: once, unknown, problem: null }
  const gravest = once.toSorted(
    (a, b) => order.indexOf(a.severity) - order.indexOf(b.severity) || (a.key < b.key ? -1 : 1)
  )
  return {
    findings: gravest.slice(0, mostFindings),
    unknown,
    problem: `There are ${once.length} findings; the ${mostFindings} gravest are kept`
  }
}
