/** The outbox as its deliverers see it: whose turn it is, and what became of it. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { storableText } from "#src/storable.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { KeyRing, type KeyRingError } from "#src/store/KeyRing.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { mailPlace } from "./Mail.ts"

/** A mail that this process may hand over now, and no other process until the lease ends. */
export interface Claimed {
  readonly id: string
  readonly template: string
  readonly recipient: string
  readonly createdAt: Date
  /** How often it was claimed, this time included. */
  readonly attempt: number
  /** It is of no use any more. */
  readonly expired: boolean
  readonly lease: bigint
  readonly open: Effect.Effect<{ readonly subject: string; readonly text: string }, KeyRingError>
}

export interface Waiting {
  readonly count: number
  /** Seconds that the oldest has waited since somebody asked for it. */
  readonly oldest: number
  /** Seconds until the next is due; undefined: none waits. */
  readonly nextIn: number | undefined
}

/** Longer than a try takes. */
export const leaseSeconds = 180
const Content = Schema.fromJsonString(Schema.Struct({ subject: Schema.String, text: Schema.String }))
const decodeContent = Schema.decodeUnknownEffect(Content)

export class Outbox extends Context.Service<
  Outbox,
  {
    readonly claim: (most: number) => Effect.Effect<ReadonlyArray<Claimed>, StoreUnavailable>
    /** It was handed over: what it said is forgotten. */
    readonly sent: (mail: Claimed) => Effect.Effect<void, StoreUnavailable>
    /** It will never be: what it said is forgotten, why is kept. */
    readonly failed: (mail: Claimed, why: string) => Effect.Effect<void, StoreUnavailable>
    /** Another try in about `seconds`. */
    readonly later: (mail: Claimed, why: string, seconds: number) => Effect.Effect<void, StoreUnavailable>
    /** Nobody tried: it is due again as if it had not been claimed. */
    readonly giveBack: (mails: ReadonlyArray<Claimed>) => Effect.Effect<void, StoreUnavailable>
    readonly waiting: Effect.Effect<Waiting, StoreUnavailable>
  }
>()("svc/mail/Outbox") {
  static readonly layer = Layer.effect(
    Outbox,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ring = yield* KeyRing

      interface Row {
        readonly id: string
        readonly template: string
        readonly recipient: string
        readonly created_at: Date
        readonly attempt: number
        readonly expired: boolean
        readonly lease_token: bigint
        readonly key_id: string
        readonly sealed: Uint8Array
      }

      const end = (mail: Claimed, state: "sent" | "failed", why: string | null) =>
        Effect.asVoid(
          repeatable(sql`
            update mail_outbox set state = ${state}, key_id = null, sealed = null, settled_at = now(),
              lease_token = null, last_error = ${why === null ? null : storableText(why)}::text
            where id = ${mail.id}::uuid and lease_token = ${mail.lease} and state = 'waiting'`)
        )

      return Outbox.of({
        // Index: mail_outbox_due. The lease is the time at which it is due again, should its holder vanish.
        claim: (most) =>
          Effect.map(
            repeatable(sql<Row>`
              update mail_outbox set attempt = attempt + 1, lease_token = nextval('lease_token'),
                due_at = now() + make_interval(secs => ${leaseSeconds}::int)
              where id in (
                select id from mail_outbox where state = 'waiting' and due_at <= now()
                order by due_at limit ${most}::int for update skip locked)
              returning id, template, recipient, created_at, attempt, expires_at <= now() as expired, lease_token,
                key_id, sealed`),
            (rows) =>
              rows.map(
                (row): Claimed => ({
                  id: row.id,
                  template: row.template,
                  recipient: row.recipient,
                  createdAt: row.created_at,
                  attempt: row.attempt,
                  expired: row.expired,
                  lease: row.lease_token,
                  open: ring.open(mailPlace(row.id), { keyId: row.key_id, bytes: row.sealed }).pipe(
                    // What was sealed is what `Mail.prepare` made.
                    Effect.flatMap((text) => Effect.orDie(decodeContent(Redacted.value(text))))
                  )
                })
              )
          ),
        sent: (mail) => end(mail, "sent", null),
        failed: (mail, why) => end(mail, "failed", why),
        later: (mail, why, seconds) =>
          Effect.asVoid(
            repeatable(sql`
              update mail_outbox set lease_token = null, last_error = ${storableText(why)},
                due_at = now() + make_interval(secs => ${seconds}::float8 * (0.5 + random() / 2))
              where id = ${mail.id}::uuid and lease_token = ${mail.lease} and state = 'waiting'`)
          ),
        giveBack: (mails) =>
          Effect.asVoid(
            Effect.forEach(mails, (mail) =>
              repeatable(sql`
                update mail_outbox set lease_token = null, attempt = attempt - 1, due_at = now()
                where id = ${mail.id}::uuid and lease_token = ${mail.lease} and state = 'waiting'`)
            )
          ),
        waiting: Effect.map(
          repeatable(sql<{
            readonly count: number
            readonly oldest: number | null
            readonly next: number | null
          }>`
            select count(*)::int as count, extract(epoch from now() - min(created_at))::float8 as oldest,
              extract(epoch from min(due_at) - now())::float8 as next
            from mail_outbox where state = 'waiting'`),
          ([row]) => ({
            count: row?.count ?? 0,
            oldest: row?.oldest ?? 0,
            nextIn: row?.next ?? undefined
          })
        )
      })
    })
  )
}
