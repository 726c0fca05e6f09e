/**
 * Requests with an `Idempotency-Key`. The first try reserves the id of what it makes and a seed for its secrets, and
 * every later try of the same request has the same. The answer of a request that took effect is kept for 24 hours and
 * given again byte for byte. Both are sealed: they hold secrets that are shown once.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { Db, inOrg, repeatable } from "./Db.ts"
import { KeyRing } from "./KeyRing.ts"
import { newReservation, type Reservation } from "./Reservation.ts"

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
  | { readonly _tag: "Try"; readonly reservation: Reservation }
  | { readonly _tag: "Replay"; readonly answer: Answer }
  | { readonly _tag: "InFlight" }
  | { readonly _tag: "OtherRequest" }

/** A try that has not ended after this many seconds died; another may take its place. */
const leaseSeconds = 120

const AnswerText = Schema.fromJsonString(Answer)
const ReservationText = Schema.fromJsonString(Schema.Struct({ uid: Schema.String, seed: Schema.String }))

export class Idempotency extends Context.Service<
  Idempotency,
  {
    /** Takes the key for a try, unless another try is running or the request is answered. */
    readonly begin: (ref: IdempotencyRef, digest: Buffer) => Effect.Effect<Begun, StoreUnavailable>
    /** Keeps the answer of a request that took effect. */
    readonly finish: (ref: IdempotencyRef, answer: Answer) => Effect.Effect<void, StoreUnavailable>
    /** The try changed nothing. Unless an earlier one may have, the key is free for any request. */
    readonly refuse: (ref: IdempotencyRef) => Effect.Effect<void, StoreUnavailable>
    /** The try may have taken effect: the next one, of the same request only, has its reservation. */
    readonly fail: (ref: IdempotencyRef) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/store/Idempotency") {
  static readonly layer = Layer.effect(
    Idempotency,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const ring = yield* KeyRing

      const open = (ref: IdempotencyRef, sealed: { readonly key_id: string; readonly sealed: Uint8Array }) =>
        Effect.mapBoth(ring.open(idempotencyPlace(ref), { keyId: sealed.key_id, bytes: sealed.sealed }), {
          onSuccess: Redacted.value,
          onFailure: (error) => new StoreUnavailable({ message: error.message, cause: error })
        })

      return Idempotency.of({
        begin: Effect.fnUntraced(function* (ref, digest) {
          const fresh = newReservation(true)
          const text = JSON.stringify({ uid: fresh.uid, seed: Redacted.value(fresh.seed) })
          const { keyId, bytes } = ring.seal(idempotencyPlace(ref), Redacted.make(text))
          const known = sql`i.created_at >= now() - interval '24 hours'`
          // An earlier try may have taken effect: its reservation goes on. After a refusal there is a fresh one, whose time
          // is that of the try that makes something.
          const same = sql`${known} and i.status is null and i.outcome is distinct from 'refused'
            and i.sealed is not null and i.request_digest = excluded.request_digest`
          const [row] = yield* repeatable(sql<{
            readonly mine: boolean
            readonly same: boolean
            readonly answered: boolean
            readonly key_id: string | null
            readonly sealed: Uint8Array | null
          }>`
            with begun as (
              insert into idempotency as i (org_id, credential, key, request_digest, key_id, sealed)
              select ${ref.orgId}::uuid, ${ref.credential}, ${ref.key}, ${digest}, ${keyId}::text, ${bytes}::bytea
              where ${inOrg(sql, ref.orgId)}
              on conflict (org_id, credential, key) do update set
                doubtful = ${same},
                key_id = case when ${same} then i.key_id else excluded.key_id end,
                sealed = case when ${same} then i.sealed else excluded.sealed end,
                request_digest = excluded.request_digest, created_at = now(), status = null, outcome = null
              -- The former release answers without clearing the outcome: what is answered has none, whatever the row says.
              where not (${known}) or i.status is null and (i.outcome = 'refused'
                or i.request_digest = excluded.request_digest
                  and (i.outcome = 'failed' or i.created_at < now() - ${leaseSeconds}::int * interval '1 second'))
              returning key_id, sealed
            )
            select true as mine, true as same, false as answered, key_id, sealed from begun
            union all
            select false, request_digest = ${digest}, status is not null, key_id, sealed from idempotency
            where org_id = ${ref.orgId}::uuid and credential = ${ref.credential} and key = ${ref.key}
              and not exists (select from begun) and ${inOrg(sql, ref.orgId)}`)
          // A row that another statement is inserting right now is not visible yet: it is in flight.
          if (row === undefined) return { _tag: "InFlight" }
          if (!row.same) return { _tag: "OtherRequest" }
          if (row.sealed === null || row.key_id === null) return { _tag: "InFlight" }
          // Taken now, or by this statement when it ran first and its answer was lost.
          if (Buffer.compare(row.sealed, bytes) === 0) return { _tag: "Try", reservation: fresh }
          if (row.mine) {
            const opened = yield* open(ref, { key_id: row.key_id, sealed: row.sealed })
            const { uid, seed } = yield* Effect.orDie(Schema.decodeUnknownEffect(ReservationText)(opened))
            return { _tag: "Try", reservation: { uid, seed: Redacted.make(seed), keyed: true, again: true } }
          }
          if (!row.answered) return { _tag: "InFlight" }
          const opened = yield* open(ref, { key_id: row.key_id, sealed: row.sealed })
          return {
            _tag: "Replay",
            answer: yield* Effect.orDie(Schema.decodeUnknownEffect(AnswerText)(opened))
          }
        }),
        finish: Effect.fnUntraced(function* (ref, answer) {
          const text = yield* Effect.orDie(Schema.encodeEffect(AnswerText)(answer))
          const { keyId, bytes } = ring.seal(idempotencyPlace(ref), Redacted.make(text))
          yield* repeatable(sql`
            update idempotency set status = ${answer.status}::int, key_id = ${keyId}, sealed = ${bytes}, outcome = null
            where org_id = ${ref.orgId}::uuid and credential = ${ref.credential} and key = ${ref.key}
              and status is null and ${inOrg(sql, ref.orgId)}`)
        }),
        refuse: Effect.fnUntraced(function* (ref) {
          yield* repeatable(sql`
            update idempotency set outcome = case when doubtful then 'failed' else 'refused' end
            where org_id = ${ref.orgId}::uuid and credential = ${ref.credential} and key = ${ref.key}
              and status is null and ${inOrg(sql, ref.orgId)}`)
        }),
        fail: Effect.fnUntraced(function* (ref) {
          yield* repeatable(sql`
            update idempotency set outcome = 'failed'
            where org_id = ${ref.orgId}::uuid and credential = ${ref.credential} and key = ${ref.key}
              and status is null and ${inOrg(sql, ref.orgId)}`)
        })
      })
    })
  )
}
