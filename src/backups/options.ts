/** How often backups are looked after, and how much at once. Tests shorten these. */
import * as Context from "effect/Context"

export interface BackupOptions {
  /** Looks at the folders of finished segments and at what is due. */
  readonly lookMs: number
  /** Looks at which databases are due for a backup; at once when one came, went or changed. */
  readonly planMs: number
  /** Looks for what is no longer kept. */
  readonly tidyMs: number
  readonly leaseSeconds: number
  readonly heartbeatMs: number
  /** Base backups and drills at once in one process. */
  readonly jobs: number
  /** Pause before a failed job is tried again, three times as long each time. */
  readonly retrySeconds: number
  /** A base backup is due so long after the last one. */
  readonly backupEveryMs: number
  /** Infinity: never by itself. */
  readonly drillEveryMs: number
  /** A round of archiving begins with no other database after this time. */
  readonly shipMs: number
  /** The oldest finished segment that is not in the repository yet may be so old before it is called late. */
  readonly behindAfterMs: number
  /** Bytes that stay free on the disk: below, finished segments are given up, oldest first. */
  readonly reserveBytes: number
  /** How old debris is before it is removed: whoever made it may still be at it. */
  readonly debrisAfterMs: number
  /** How long a flush, and the end of a backup, wait for their segment. */
  readonly segmentWaitMs: number
  /** Copies to destinations that are on their way at the same time in one process. */
  readonly copiesAtOnce: number
  /** Tries to remove an object from a destination. */
  readonly removalTries: number
}

export const BackupOptions = Context.Reference<BackupOptions>("svc/backups/BackupOptions", {
  defaultValue: () => ({
    lookMs: 2_000,
    planMs: 30_000,
    tidyMs: 10 * 60_000,
    leaseSeconds: 30,
    heartbeatMs: 5_000,
    jobs: 2,
    retrySeconds: 5,
    backupEveryMs: 86_400_000,
    drillEveryMs: 7 * 86_400_000,
    shipMs: 5_000,
    behindAfterMs: 5 * 60_000,
    reserveBytes: 512 << 20,
    debrisAfterMs: 3_600_000,
    segmentWaitMs: 60_000,
    copiesAtOnce: 8,
    removalTries: 20
  })
})
