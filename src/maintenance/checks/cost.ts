/** Things that nobody seems to need, and that take room or cost. */
import * as Effect from "effect/Effect"
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import { Domain } from "#schemas/domain.ts"
import type { Measurement } from "#schemas/signal.ts"
import { MetricHistory } from "#src/metrics/MetricHistory.ts"
import type { Points } from "#src/metrics/points.ts"
import { windowOf } from "#src/metrics/tiers.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { Finding, Remedy } from "../finding.ts"
import {
  type Check,
  dayMs,
  findingOf,
  hourMs,
  type Look,
  ofKind,
  spanInWords,
  type Unknown,
  unknownOf
} from "../look.ts"
import { deleteBranch, deleteCache, deleteDatabase, removeDomain } from "../remedies.ts"

const forgottenMs = 14 * dayMs
const idleMs = 7 * dayMs

const branches = ofKind(DatabaseBranch)
const caches = ofKind(Cache)
const databases = ofKind(Database)
const domains = ofKind(Domain)

/** What is never above 0 while nobody uses it. */
const uses: Readonly<Record<string, ReadonlyArray<Measurement>>> = {
  [Cache.name]: ["redis.hits", "redis.misses"],
  [Database.name]: ["database.connections"],
  [DatabaseBranch.name]: ["database.connections"]
}

export const makeCostCheck = Effect.gen(function* () {
  const history = yield* MetricHistory

  const idle = Effect.fnUntraced(function* (
    { orgId, now }: Look,
    record: ResourceRecord,
    remedy: Remedy | null
  ) {
    const from = now - idleMs
    if (record.createdAt.getTime() > from) return []
    const points = yield* history.points(orgId, record.uid, windowOf(from, now, now, hourMs / 1_000))
    const use = useOf(points, uses[record.kind] ?? [], from)
    if (use !== "none") return use === "some" ? [] : [unknownOf("idle", record)]
    return [
      findingOf("cost", "idle", record, {
        severity: "info",
        // Counted between looks, or seen at one: a connection may have come and gone in between.
        summary: `${record.kind === Cache.name ? "Nothing was read from" : "No connection was seen to"} "${record.name}" for ${spanInWords(idleMs)}`,
        risk: "A server takes memory and disk, whether it is used or not.",
        evidence: { measuredSince: new Date(from).toISOString() },
        remedy
      })
    ]
  })

  const check: Check = Effect.fnUntraced(function* (look) {
    const { now, resources } = look
    const found: Array<Finding | Unknown> = []
    for (const { record, spec, status } of branches(resources)) {
      const age = now - record.createdAt.getTime()
      if (spec.expiresInDays !== null || age < forgottenMs) continue
      const databaseId = spec.sourceDatabaseId ?? status?.sourceDatabaseId ?? undefined
      const remedy = databaseId === undefined ? null : deleteBranch(record, databaseId)
      found.push(
        findingOf("cost", "lasting-branch", record, {
          severity: "info",
          summary: `The branch "${record.name}" is ${spanInWords(age)} old and never expires`,
          risk: "A copy of a whole database takes disk and memory, whether it is used or not.",
          evidence: { createdAt: record.createdAt.toISOString(), bytes: status?.totalBytes ?? null },
          remedy
        }),
        ...(yield* idle(look, record, remedy))
      )
    }
    for (const { record } of domains(resources)) {
      const lapsed = record.conditions.find(({ reason }) => reason === "ClaimLapsed")
      if (lapsed === undefined) continue
      found.push(
        findingOf("cost", "lapsed-domain", record, {
          severity: "info",
          summary: `The domain "${record.name}" was never led here`,
          risk: "It is looked at for ever, and somebody else may take the name.",
          evidence: { since: lapsed.lastTransitionAt },
          remedy: removeDomain(record)
        })
      )
    }
    for (const { record } of caches(resources))
      found.push(...(yield* idle(look, record, deleteCache(record))))
    for (const { record } of databases(resources))
      found.push(...(yield* idle(look, record, deleteDatabase(record))))
    return found
  })
  return check
})

/** `none`: measured from the beginning on, and always 0. What was not measured for a while may have been used then. */
const useOf = (
  points: Points,
  names: ReadonlyArray<Measurement>,
  from: number
): "none" | "some" | "unknown" => {
  const hours = new Set<number>()
  for (const [time, values] of points) {
    const measured = names.flatMap((name) => values.get(name) ?? [])
    if (measured.some(({ max }) => max > 0)) return "some"
    if (measured.length > 0) hours.add(Math.floor(time / hourMs))
  }
  const begun = Math.min(...hours) * hourMs
  return begun <= from + hourMs && hours.size >= (idleMs / hourMs) * 0.9 ? "none" : "unknown"
}
