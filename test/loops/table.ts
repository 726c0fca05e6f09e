/** A table of jobs as the suite of leased loops sees it: the port of its loop, and the other sides of the table. */
import type * as Effect from "effect/Effect"
import type { LeasedLoop } from "#src/loops/leased.ts"

export interface StoredJob {
  readonly leased: boolean
  readonly done: boolean
  /** Milliseconds; of a job that is done: of no meaning. */
  readonly dueIn: number
}

export interface Table<Job, Result> {
  /** As the program has it; the suite replaces what running a job does. */
  readonly port: LeasedLoop<Job, Result>
  readonly makeOrganization: Effect.Effect<string>
  /** A job that is due in so many milliseconds, told to whoever listens. Answers its id. */
  readonly add: (orgId: string, dueIn?: number) => Effect.Effect<string>
  readonly stored: (id: string) => Effect.Effect<StoredJob>
  /** Time passes for what is stored. */
  readonly advance: (ms: number) => Effect.Effect<void>
  /** No jobs of other tests. */
  readonly clear: Effect.Effect<void>
  /** What a run comes to that went well. */
  readonly succeeded: (job: Job) => Result
}
