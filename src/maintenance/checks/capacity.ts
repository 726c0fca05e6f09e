/** Room that runs out: disks, memory, connections, queues, and money. */
import * as Effect from "effect/Effect"
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import { type Measurement, measurements } from "#schemas/signal.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { CurrentMetrics, type Measured } from "#src/metrics/CurrentMetrics.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { Finding } from "../finding.ts"
import { type Check, findingOf, ofKind, type Unknown, unknownOf } from "../look.ts"
import { growCache } from "../remedies.ts"

/** Measurements that are older tell nothing of now. */
const freshMs = 5 * 60_000
/** Percent of what there may be, from where on it is urgent. */
const urgentPercent = 95

const caches = ofKind(Cache)
const databases = ofKind(Database)
const branches = ofKind(DatabaseBranch)

const larger: Readonly<Record<string, string>> = { "cache-n1": "cache-s1", "cache-s1": "cache-s2" }

interface Room {
  readonly signal: Measurement
  readonly what: string
  readonly risk: string
}
const rooms: ReadonlyArray<Room> = [
  {
    signal: "storage.capacity",
    what: "its disk",
    risk: "When the disk is full, nothing can be written any more."
  },
  {
    signal: "memory.pressure",
    what: "its memory",
    risk: "When the memory is used up, the kernel ends processes of the server, and clients lose their connections."
  },
  {
    signal: "database.pool_saturation",
    what: "its connections",
    risk: "When no connection is left, requests of the app fail."
  }
]

const signals: ReadonlyArray<Measurement> = [...rooms.map(({ signal }) => signal), "queue.backlog"]

export const makeCapacityCheck = Effect.gen(function* () {
  const metrics = yield* CurrentMetrics
  const budgets = yield* Budgets

  const measured = (record: ResourceRecord, { values, at }: Measured): ReadonlyArray<Finding> => {
    const full = rooms.flatMap(({ signal, what, risk }): ReadonlyArray<Finding> => {
      const percent = values[signal]
      const limit = measurements[signal].usualThreshold
      if (percent === undefined || limit === undefined || percent < limit) return []
      const isUrgent = percent >= urgentPercent
      return [
        findingOf("capacity", signal, record, {
          severity: isUrgent ? "critical" : "warning",
          summary: `"${record.name}" uses ${Math.floor(percent)} % of ${what}`,
          risk,
          evidence: { percent, threshold: limit, measuredAt: at.toISOString() },
          remedy: remedyFor(record, signal)
        })
      ]
    })
    const backlog = values["queue.backlog"]
    const most = measurements["queue.backlog"].usualThreshold
    if (backlog === undefined || most === undefined || backlog < most) return full
    return [
      ...full,
      findingOf("capacity", "queue.backlog", record, {
        severity: "warning",
        summary: `${backlog} messages wait in the queue "${record.name}"`,
        risk: "Messages are removed when they have waited for as long as the queue keeps them.",
        evidence: {
          messages: backlog,
          threshold: most,
          oldestSeconds: values["queue.oldest_message_age_seconds"] ?? null,
          measuredAt: at.toISOString()
        },
        remedy: null
      })
    ]
  }

  const check: Check = Effect.fnUntraced(function* ({ orgId, now, resources }) {
    const found: Array<Finding | Unknown> = []
    const values = yield* metrics.of(
      orgId,
      resources.map(({ uid }) => uid)
    )
    for (const record of resources) {
      const fresh = (values.get(record.uid) ?? []).filter(({ at }) => now - at.getTime() <= freshMs)
      found.push(...fresh.flatMap((one) => measured(record, one)))
      for (const signal of signals) {
        const isMeasured = fresh.some(({ values }) => values[signal] !== undefined)
        const hasIt = measurements[signal].kinds.some((kind) => kind === record.kind)
        if (hasIt && !isMeasured) found.push(unknownOf(signal, record))
      }
    }
    for (const { record, status } of [
      ...databases(resources),
      ...branches(resources),
      ...caches(resources)
    ]) {
      if (status === undefined) {
        found.push(unknownOf("memory-kills", record))
        continue
      }
      const kills = killsOf(status.memoryKills)
      if (kills === 0) continue
      found.push(
        findingOf("capacity", "memory-kills", record, {
          severity: "warning",
          summary: `The kernel has ended ${kills === 1 ? "a process" : `${kills} processes`} of "${record.name}" for its memory limit`,
          risk: "Clients lose their connections each time, and work that was under way.",
          evidence: { kills },
          remedy: remedyFor(record, "memory.pressure"),
          basis: String(kills)
        })
      )
    }
    const project = resources.find(({ kind }) => kind === "Project")
    if (project === undefined) return found
    const { monthlyCap, alertPercent, hardStop, spent, reserved, month } = yield* budgets.get(
      orgId,
      project.uid
    )
    const limit = alertPercent ?? 80
    if (monthlyCap === null || monthlyCap === 0) return found
    const percent = Math.floor(((spent + reserved) * 100) / monthlyCap)
    if (percent >= limit)
      found.push(
        findingOf("capacity", "budget", project, {
          severity: hardStop && percent >= urgentPercent ? "critical" : "warning",
          summary: `${percent} % of the project's budget of ${month} is used`,
          risk: hardStop
            ? "What costs is refused when it is used up."
            : "The month will cost more than was planned.",
          evidence: {
            percent,
            monthlyCapMicroUsd: monthlyCap,
            spentMicroUsd: spent,
            reservedMicroUsd: reserved
          },
          remedy: null,
          basis: month
        })
      )
    return found
  })
  return check
})

/** By server where there are several. */
const killsOf = (kills: number | Readonly<Record<string, number>> | undefined): number =>
  typeof kills === "object" ? Object.values(kills).reduce((sum, one) => sum + one, 0) : (kills ?? 0)

/** A larger size mends it; only of a cache a size can be changed. */
const remedyFor = (record: ResourceRecord, signal: Measurement) => {
  if (signal !== "memory.pressure") return null
  const [cache] = caches([record])
  const sku = cache === undefined ? undefined : larger[cache.spec.sku]
  return sku === undefined ? null : growCache(record, sku)
}
