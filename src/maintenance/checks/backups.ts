/** Whether each database can be restored: base backups, proofs of them, the log's archive, copies elsewhere. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Database } from "#schemas/database.ts"
import { defaultEnvironment } from "#schemas/names.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { BackupOptions } from "#src/backups/options.ts"
import { isReady } from "#src/store/records.ts"
import type { Finding } from "../finding.ts"
import { type Check, findingOf, ofKind, spanInWords, type Unknown, unknownOf } from "../look.ts"
import { backUp, testDestination } from "../remedies.ts"

const databases = ofKind(Database)
/** Jobs that are looked at: the newest, of which there are some each day. */
const newest = 50

export const makeBackupsCheck = Effect.gen(function* () {
  const jobs = yield* Jobs
  const ledger = yield* Ledger
  const { backupEveryMs, drillEveryMs } = yield* BackupOptions

  const check: Check = Effect.fnUntraced(function* ({ orgId, now, resources, elsewhere, destinations }) {
    const found: Array<Finding | Unknown> = []
    const all = databases(resources)
    const usedBy = (some: typeof all) => new Set(some.flatMap(({ spec }) => spec.backup.destinationIds))
    const [used, usedElsewhere] = [usedBy(all), usedBy(databases(elsewhere))]
    for (const record of destinations) {
      if (!used.has(record.uid)) {
        if (usedElsewhere.has(record.uid)) found.push(unknownOf("destination-failing", record))
        continue
      }
      if (isReady(record.conditions)) continue
      const ready = record.conditions.find(({ type }) => type === "Ready")
      if (ready === undefined || ready.status === "unknown") {
        found.push(unknownOf("destination-failing", record))
        continue
      }
      found.push(
        findingOf("backups", "destination-failing", record, {
          severity: "warning",
          summary: `Backups cannot be stored at the destination "${record.name}": ${ready.message}`,
          risk: "If this machine is lost, what was backed up since then is lost with it.",
          evidence: { reason: ready.reason, since: ready.lastTransitionAt },
          remedy: testDestination(record),
          basis: ready.reason
        })
      )
    }
    for (const { record, spec } of all) {
      const age = now - record.createdAt.getTime()
      const lineage = spec.lineage ?? record.uid
      const [made, drills, trouble] = yield* Effect.all(
        [
          jobs.list(orgId, record.uid, "backup", newest),
          jobs.list(orgId, record.uid, "drill", newest),
          ledger.trouble({ orgId, lineage })
        ],
        { concurrency: 3 }
      )
      const last = made.find((job) => job.status === "succeeded" && job.lineage === lineage)
      const lastAt = last?.consistentAt ?? last?.finishedAt ?? undefined
      const backupAge = lastAt === undefined ? age : now - lastAt.getTime()
      if (backupAge > 1.5 * backupEveryMs)
        found.push(
          findingOf("backups", "backup-missing", record, {
            severity: lastAt === undefined || backupAge > 3 * backupEveryMs ? "critical" : "warning",
            summary:
              lastAt === undefined
                ? `The database "${record.name}" has never been backed up`
                : `The last backup of the database "${record.name}" is ${spanInWords(backupAge)} old`,
            risk: "If its data is damaged, what was written since the last backup may be lost.",
            evidence: {
              lastBackupAt: lastAt?.toISOString() ?? null,
              lastError: made.find(({ error }) => error !== null)?.error ?? null
            },
            remedy: backUp(record, false),
            basis: lastAt === undefined ? "never" : "late"
          })
        )
      const proven = drills.find(({ status }) => status === "succeeded")?.finishedAt ?? undefined
      const lastDrill = drills.find(({ finishedAt }) => finishedAt !== null)
      if (lastDrill?.status === "failed")
        found.push(
          findingOf("backups", "drill-failed", record, {
            severity: "critical",
            summary: `The last drill could not restore the database "${record.name}" from its backup`,
            risk: "The backup may be of no use when it is needed.",
            evidence: {
              drilledAt: lastDrill.finishedAt?.toISOString() ?? null,
              error: lastDrill.error
            },
            remedy: backUp(record, true)
          })
        )
      else if (
        last !== undefined &&
        now - (proven?.getTime() ?? record.createdAt.getTime()) > 2 * drillEveryMs
      )
        found.push(
          findingOf("backups", "drill-missing", record, {
            severity: "warning",
            summary: `No drill has restored a backup of the database "${record.name}" for ${spanInWords(now - (proven ?? record.createdAt).getTime())}`,
            risk: "Nobody knows whether its backups can be restored.",
            evidence: { lastProvenAt: proven?.toISOString() ?? null },
            remedy: backUp(record, true)
          })
        )
      if (Option.isSome(trouble))
        found.push(
          findingOf("backups", "archiving", record, {
            severity: "critical",
            summary: `The log of the database "${record.name}" is not archived as it should be: ${trouble.value.message}`,
            risk: "A moment since then cannot be restored, and the log fills the disk.",
            evidence: { reason: trouble.value.reason },
            remedy: null,
            basis: trouble.value.reason
          })
        )
      if (record.environment === defaultEnvironment && spec.backup.destinationIds.length === 0)
        found.push(
          findingOf("backups", "no-destination", record, {
            severity: "info",
            summary: `Backups of the database "${record.name}" are on this machine only`,
            risk: "If this machine is lost, the database and its backups are lost together.",
            evidence: { destinations: 0 },
            remedy: null
          })
        )
    }
    return found
  })
  return check
})
