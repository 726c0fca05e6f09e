/** Times and bounds of maintenance. Tests shorten them. */
import * as Context from "effect/Context"

export interface MaintenanceOptions {
  readonly leaseMs: number
  /** A look for work even if nobody said anything. */
  readonly lookMs: number
  /** Between looks for schedules that are due. */
  readonly planMs: number
  /** Runs, and beside them actions, under way in this process. */
  readonly atOnce: number
  /** Tries of a run or an action whose process was killed, or that was not answered. */
  readonly mostAttempts: number
}

export const MaintenanceOptions = Context.Reference<MaintenanceOptions>("svc/maintenance/Options", {
  defaultValue: () => ({ leaseMs: 60_000, lookMs: 30_000, planMs: 30_000, atOnce: 4, mostAttempts: 8 })
})

/** What both loops listen to: there are runs or actions to begin. */
export const channel = "svc_maintenance"
