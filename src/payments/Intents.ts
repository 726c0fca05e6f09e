/**
 * Requests that make something at Stripe. Each is stored before Stripe is asked, with the idempotency key that all tries
 * of it have, so that a try after a crash finds what an earlier one made.
 */
import { createHash, createHmac, randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Connection } from "./Connections.ts"
import { livingConnection } from "./Projections.ts"

export interface Intent {
  /** Also of the object that it makes. */
  readonly id: string
  /** For Stripe. */
  readonly idempotencyKey: string
  readonly attempt: number
  /** What it made, if that is known. */
  readonly processorId: string | null
  readonly createdAt: Date
  /** The clock of the store, before Stripe is asked. */
  readonly askedAt: Date
  /** The same key came with another request before. */
  readonly reused: boolean
}

export interface IntentRequest {
  /** Id of the operation. */
  readonly operation: string
  /** Of the caller; undefined: the request has none, and is not repeated. */
  readonly callerKey: string | undefined
  /** The id for what is made. */
  readonly id: string
  /** What was asked for. */
  readonly body: unknown
}

export class Intents extends Context.Service<
  Intents,
  {
    /** None: the connection is gone. */
    readonly begin: (
      connection: Connection,
      request: IntentRequest
    ) => Effect.Effect<Option.Option<Intent>, StoreUnavailable>
    /** Its request took effect, for the audit log: where nothing is stored that could be audited with it. */
    readonly audit: (
      connection: Connection,
      intent: Intent,
      actor: Actor
    ) => Effect.Effect<void, StoreUnavailable>
    /** What Stripe keeps for the key is a failure of its own: the next try has another one. */
    readonly anew: (connection: Connection, intent: Intent) => Effect.Effect<Intent, StoreUnavailable>
  }
>()("svc/payments/Intents") {
  static readonly layer = Layer.effect(
    Intents,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const platform = yield* PlatformSecrets
      const secret = yield* platform.ensure(
        "payments-idempotency-key",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )
      const digestOf = (text: string) =>
        createHmac("sha256", Redacted.value(secret)).update(text).digest("base64url")
      const atStripe = (key: string, attempt: number) =>
        attempt === 1 ? `svc_${key}` : `svc_${key}_${attempt}`

      return Intents.of({
        begin: Effect.fn("payments.Intents.begin")(function* (
          connection,
          { operation, callerKey, id, body }
        ) {
          const { orgId, uid, projectId, environment } = connection
          // As JSON, so that no two lists of words are one text. Another connection is another account, perhaps.
          const key = digestOf(
            JSON.stringify([
              orgId,
              projectId,
              environment,
              uid,
              operation,
              callerKey === undefined,
              callerKey ?? id
            ])
          )
          const digest = createHash("sha256").update(JSON.stringify(body)).digest()
          const [row] = yield* repeatable(sql<{
            readonly id: string
            readonly attempt: number
            readonly processor_id: string | null
            readonly created_at: Date
            readonly asked_at: Date
            readonly same: boolean
          }>`
            with place as materialized (${livingConnection(sql, connection)})
            insert into payment_intent as i (org_id, id, connection_uid, key, digest)
            select p.org_id, ${id}::uuid, p.uid, ${key}, ${digest}::bytea from place p
            on conflict (org_id, connection_uid, key) do update set key = excluded.key
            returning i.id, i.attempt, i.processor_id, i.created_at, clock_timestamp() as asked_at,
              i.digest = ${digest}::bytea as same`)
          return row === undefined
            ? Option.none()
            : Option.some({
                id: row.id,
                idempotencyKey: atStripe(key, row.attempt),
                attempt: row.attempt,
                processorId: row.processor_id,
                createdAt: row.created_at,
                askedAt: row.asked_at,
                reused: !row.same
              })
        }),
        audit: ({ orgId }, { id }, actor) =>
          Effect.asVoid(
            orUnavailable(sql`
              with i as (select id from payment_intent where org_id = ${orgId}::uuid and id = ${id}::uuid)
              ${auditOf(sql, orgId, actor, "i")}`)
          ),
        anew: Effect.fn("payments.Intents.anew")(function* ({ orgId }, intent) {
          const [row] = yield* repeatable(sql<{ readonly key: string; readonly attempt: number }>`
            update payment_intent set attempt = greatest(attempt, ${intent.attempt + 1}::int)
            where org_id = ${orgId}::uuid and id = ${intent.id}::uuid
            returning key, attempt`)
          return row === undefined
            ? intent
            : { ...intent, attempt: row.attempt, idempotencyKey: atStripe(row.key, row.attempt) }
        })
      })
    })
  )
}
