/** The loops of maintenance: one makes the runs that are due, one looks at projects. Any number of processes run them. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { MaintenanceSpec } from "#schemas/maintenance.ts"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { makeInspect } from "./inspect.ts"
import { channel, MaintenanceOptions } from "./options.ts"
import { type ClaimedRun, type RunResult, Runs } from "./Runs.ts"
import { Schedules } from "./Schedules.ts"

const decode = Schema.decodeUnknownOption(MaintenanceSpec)
const failed = (reason: string): RunResult => ({ _tag: "Failed", reason })

/** Runs as jobs. */
export const runsLoop = Effect.fnUntraced(function* (inspect: Effect.Success<typeof makeInspect>) {
  const runs = yield* Runs
  const resources = yield* Resources
  const options = yield* MaintenanceOptions

  const run = Effect.fnUntraced(function* ({ orgId, maintenanceUid, attempt }: ClaimedRun) {
    if (attempt > options.mostAttempts)
      return failed(`It was broken off ${options.mostAttempts} times; the log of the control plane tells why`)
    const record = Option.getOrUndefined(yield* resources.get(orgId, maintenanceUid))
    if (record === undefined || record.projectId === null || record.deletionRequestedAt !== null)
      return failed("The maintenance was deleted")
    const spec = Option.getOrUndefined(decode(record.spec))
    if (spec === undefined) return failed("Its settings cannot be read")
    const found = yield* inspect(orgId, record.projectId, spec)
    const { enabled, autoRemediation } = spec
    const remediation = enabled && autoRemediation.enabled ? autoRemediation : null
    return { _tag: "Looked" as const, ...found, remediation }
  })

  const loop: LeasedLoop<ClaimedRun, RunResult> = {
    name: "maintenance",
    does: "look at projects",
    idOf: ({ id }) => id,
    orgOf: ({ orgId }) => orgId,
    atOnce: options.atOnce,
    leaseMs: options.leaseMs,
    lookMs: options.lookMs,
    claim: runs.claim,
    run,
    settle: runs.finish,
    renew: runs.renew,
    release: runs.release,
    nextIn: runs.nextIn
  }
  return loop
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const schedules = yield* Schedules
    const { planMs } = yield* MaintenanceOptions
    const { notifications } = yield* Db
    const toPlan = yield* Queue.sliding<void>(1)
    const { look } = yield* leased(yield* runsLoop(yield* makeInspect))
    const planRound = Effect.gen(function* () {
      const looked = yield* answered("plan maintenance")(schedules.plan)
      if (looked > 0) return yield* look
      yield* Effect.timeoutOption(Queue.take(toPlan), planMs)
    })
    yield* Effect.forkScoped(
      Stream.runForEach(notifications(channel), (payload) => {
        if (payload !== "begin") Queue.offerUnsafe(toPlan, undefined)
        return look
      })
    )
    yield* Effect.forkScoped(Effect.forever(supervise("plan maintenance", planRound)))
  })
)
