/**
 * A cron job's schedule is put in force for the runners, which plan and make its runs. What this keeps true: the runners
 * follow the specification as it is, a job whose queue is missing says so, and nothing is left of a job that was deleted.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Cron, type CronSpec, CronSpec as CronSpecSchema } from "#schemas/cron.ts"
import { nextRun } from "#schemas/cron-schedule.ts"
import { Crons } from "#src/crons/Crons.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register, Terminal, Waiting } from "#src/engine/Reconciler.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"

const same = Schema.toEquivalence(CronSpecSchema)

/** Whether both run at the same times. */
const sameTimes = (a: CronSpec, b: CronSpec) =>
  a.schedule === b.schedule && a.timezone === b.timezone && a.enabled === b.enabled

export const layer = register(
  Cron,
  { driftInterval: "15 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const crons = yield* Crons
    const queues = yield* QueueTables
    const retryable = Effect.mapError(
      (error: { readonly message: string }) => new Retryable({ message: error.message })
    )

    /** A step that comes late is refused. */
    const accepted = (self: Effect.Effect<boolean, { readonly message: string }>) =>
      Effect.flatMap(retryable(self), (done) =>
        done ? Effect.void : Effect.fail(new Retryable({ message: "A later run has worked on the cron job" }))
      )

    const queueIsThere = Effect.fnUntraced(function* (resource: Resource<CronSpec>) {
      const { orgId, uid, parentUid, projectId, environment, spec } = resource
      const { target } = spec
      if (target.kind !== "queue") return
      const found = yield* retryable(queues.named(orgId, parentUid ?? uid, target.queue))
      if (Option.isSome(found)) return
      const message = `Waits for the queue "${target.queue}", which is not in this environment`
      const on = { kind: "Queue", projectId, environment, name: target.queue }
      return yield* new Waiting({ on, reason: "NoQueue", message })
    })

    return {
      observe: Effect.fnUntraced(function* (resource) {
        if (resource.deleting && !(yield* retryable(crons.remains(resource)))) return absent
        const found = Option.getOrUndefined(yield* retryable(crons.inForce(resource)))
        if (found === undefined && !resource.deleting) return absent
        const { config, name, environmentUid } = found ?? {}
        const matches =
          config !== undefined &&
          same(config, resource.spec) &&
          name === resource.name &&
          environmentUid === resource.parentUid
        if (matches && !resource.deleting) yield* queueIsThere(resource)
        return {
          _tag: "Present" as const,
          status: { scheduled: config?.enabled === true },
          ready: matches,
          differences: matches
            ? []
            : [{ field: "/schedule", message: "the runners follow another specification" }]
        }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { spec, parentUid } = resource
        if (parentUid === null) return yield* new Terminal({ message: "A cron job lives in an environment" })
        const before = Option.getOrUndefined(yield* retryable(crons.inForce(resource)))
        const now = yield* retryable(crons.now)
        const next = spec.enabled ? nextRun(spec.schedule, spec.timezone, now) : undefined
        const keep = before !== undefined && sameTimes(before.config, spec)
        const put = crons.put(
          { ...resource, environmentUid: parentUid, config: spec },
          keep ? undefined : next === undefined ? null : new Date(next)
        )
        yield* accepted(externalCall("crons.put", "write")(put))
      }),
      remove: (resource) => accepted(externalCall("crons.remove", "write")(crons.remove(resource)))
    }
  })
)
