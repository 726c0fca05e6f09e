/**
 * Callers of a gateway as a process of their own, to be killed. Each line that it prints is the id of a call that was sent
 * to an upstream, as far as the ledger is told.
 */
import * as fs from "node:fs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Ledger } from "#src/ai-gateways/Ledger.ts"
import { Db } from "#src/store/Db.ts"
import { callOf, outcomeOf } from "./world.ts"

const Plan = Schema.fromJsonString(
  Schema.Struct({
    url: Schema.String,
    orgId: Schema.String,
    projectId: Schema.String,
    gateway: Schema.String,
    callers: Schema.Int,
    /** Calls of each caller. */
    calls: Schema.Int,
    most: Schema.Int,
    cost: Schema.Int,
    /** How long a call takes, from none to this. */
    ms: Schema.Int
  })
)
export type Plan = typeof Plan.Type

const { url, callers, calls, most, cost, ms, ...ids } = Schema.decodeUnknownSync(Plan)(process.argv[2] ?? "")

const one = Effect.gen(function* () {
  const { reserve } = yield* Ledger
  const { id, sent, settle } = yield* reserve(
    callOf({ ...ids, place: { projectId: ids.projectId, production: "" } }, most)
  )
  yield* sent(() => outcomeOf(cost))
  fs.writeSync(1, `${id}\n`)
  if (ms > 0) yield* Effect.sleep(Math.random() * ms)
  yield* settle(outcomeOf(cost))
}).pipe(
  Effect.scoped,
  Effect.catchTag("BudgetUsedUp", () => Effect.void)
)

Effect.runPromise(
  Effect.forEach(
    Array.from({ length: callers }, (_, index) => index),
    () => Effect.repeat(one, { times: calls - 1 }),
    { concurrency: "unbounded", discard: true }
  ).pipe(Effect.provide(Ledger.layer.pipe(Layer.provide(Db.layer({ url: Redacted.make(url) })))))
).then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error}\n`)
    process.exit(1)
  }
)
