/**
 * Answers that are given again: the first answer to a request with an `Idempotency-Key` is kept for 24 hours,
 * sealed (it may hold a secret that is shown once), and replayed byte for byte.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Db, inOrg, repeatable } from "./Db.ts"
import { StoreUnavailable } from "./errors.ts"
import { KeyRing } from "./KeyRing.ts"

export interface IdempotencyRef {
  readonly orgId: string
  readonly credential: string
  readonly key: string
}

/** The words a kept answer is bound to. */
export const idempotencyPlace = (ref: IdempotencyRef): ReadonlyArray<string> => [
  "idempotency",
  ref.orgId,
  ref.credential,
  ref.key
]

export const Answer = Schema.Struct({
  status: Schema.Int,
  headers: Schema.Record(Schema.String, Schema.String),
  /** Base64. */
  body: Schema.String
})
export type Answer = typeof Answer.Type

export type Begun =
  | { readonly _tag: "First" }
  | { readonly _tag: "Replay"; readonly answer: Answer }
  | { readonly _tag: "InFlight" }
  | { readonly _tag: "OtherRequest" }

/** A first request that has not answered after this many seconds died; another may take its place. */
const takeOverAfter = 120

const AnswerText = Schema.fromJsonString(Answer)

export class Idempotency extends Context.Service<
  Idempotency,
  {
    readonly begin: (ref: IdempotencyRef, digest: Buffer) => Effect.Effect<Begun, StoreUnavailable>
    readonly finish: (ref: IdempotencyRef, answer: Answer) => Effect.Effect<void, StoreUnavailable>
    /** Forgets a request that did not come to an answer worth keeping. */
    readonly forget: (ref: IdempotencyRef) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/store/Idempotency") {
  static readonly layer = Layer.effect(
    Idempotency,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const ring = yield* KeyRing
      return Idempotency.of({
        begin: Effect.fnUntraced(function* (ref, digest) {
          const [row] = yield* repeatable(sql<{
            readonly first: boolean
            readonly same: boolean
            readonly key_id: string | null
            readonly sealed: Uint8Array | null
          }>`
            with begun as (
              insert into idempotency as i (org_id, credential, key, request_digest)
              select ${ref.orgId}::uuid, ${ref.credential}, ${ref.key}, ${digest} where ${inOrg(sql, ref.orgId)}
              on conflict (org_id, credential, key) do update set
                request_digest = excluded.request_digest, created_at = now(), status = null, sealed = null, key_id = null
              where i.created_at < now() - interval '24 hours'
                or i.status is null and i.created_at < now() - ${takeOverAfter}::int * interval '1 second'
              returning true as first
            )
            select true as first, true as same, null::text as key_id, null::bytea as sealed from begun
            union all
            select false, request_digest = ${digest}, key_id, sealed from idempotency
            where org_id = ${ref.orgId}::uuid and credential = ${ref.credential} and key = ${ref.key}
              and not exists (select from begun) and ${inOrg(sql, ref.orgId)}`)
          // A row that another statement is inserting right now is not visible yet: it is in flight.
          if (row === undefined) return { _tag: "InFlight" }
          if (row.first) return { _tag: "First" }
          if (!row.same) return { _tag: "OtherRequest" }
          if (row.sealed === null || row.key_id === null) return { _tag: "InFlight" }
          const opened = yield* Effect.mapError(
            ring.open(idempotencyPlace(ref), { keyId: row.key_id, bytes: row.sealed }),
            (error) => new StoreUnavailable({ message: error.message, cause: error })
          )
          const answer = yield* Effect.orDie(Schema.decodeUnknownEffect(AnswerText)(Redacted.value(opened)))
          return { _tag: "Replay", answer }
        }),
        finish: Effect.fnUntraced(function* (ref, answer) {
          const text = yield* Effect.orDie(Schema.encodeEffect(AnswerText)(answer))
          const { keyId, bytes } = ring.seal(idempotencyPlace(ref), Redacted.make(text))
          yield* repeatable(sql`
            update idempotency set status = ${answer.status}::int, key_id = ${keyId}, sealed = ${bytes}
            where org_id = ${ref.orgId}::uuid and credential = ${ref.credential} and key = ${ref.key}
              and status is null and ${inOrg(sql, ref.orgId)}`)
        }),
        forget: Effect.fnUntraced(function* (ref) {
          yield* repeatable(sql`
            delete from idempotency where org_id = ${ref.orgId}::uuid and credential = ${ref.credential}
              and key = ${ref.key} and status is null and ${inOrg(sql, ref.orgId)}`)
        })
      })
    })
  )
}
