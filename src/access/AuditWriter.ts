/**
 * The audit log of what was refused. What was done is audited in the statement that did it; refusals are collected
 * and written together, so that somebody who knocks often does not slow down the others.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import { Db, repeatable } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"

export interface Denied extends Actor {
  readonly orgId: string | null
  readonly resource: string | null
}

export class AuditWriter extends Context.Service<
  AuditWriter,
  {
    /** Never fails and never waits; under a flood the oldest are dropped and counted in the log. */
    readonly denied: (entry: Denied) => void
  }
>()("svc/access/AuditWriter") {
  static readonly layer = Layer.effect(
    AuditWriter,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const queue = yield* Queue.sliding<Denied>(5_000)
      const write = (entries: ReadonlyArray<Denied>) =>
        repeatable(sql`
          insert into audit_log (org_id, principal, credential, operation, resource, request_id, address, outcome)
          select "orgId", principal, credential, operation, resource, "requestId", address, outcome
          from jsonb_to_recordset(${sql.json(entries)}::jsonb) as e("orgId" uuid, principal text, credential text,
            operation text, resource text, "requestId" text, address text, outcome int)`).pipe(
          Effect.catch((error) => Effect.logWarning(`${entries.length} refusals could not be audited`, error))
        )
      const rest = Effect.flatMap(Queue.clear(queue), (entries) =>
        entries.length === 0 ? Effect.void : write(entries)
      )
      yield* Effect.addFinalizer(() => rest)
      yield* Effect.forkScoped(
        Effect.forever(
          Effect.gen(function* () {
            const first = yield* Queue.take(queue)
            yield* Effect.sleep("50 millis")
            yield* write([first, ...(yield* Queue.clear(queue))])
          })
        )
      )
      return AuditWriter.of({ denied: (entry) => void Queue.offerUnsafe(queue, entry) })
    })
  )
}
