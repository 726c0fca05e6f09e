/**
 * Promising a mail. What is promised is a row of the outbox, inserted by the very statement that makes the mail
 * necessary, so that neither exists without the other; `deliver.ts` sends it, however long that takes.
 *
 * A mail may hold a token, so its text is sealed until it is sent, and gone after that.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"

/** What a mail says. `messages.ts` has all of them. */
export interface Message {
  readonly template: string
  readonly subject: string
  /** Plain text, which every reader shows and no screen reader stumbles over. */
  readonly text: string
}

export interface Letter extends Message {
  readonly to: string
  /** The organization it is about; null when it is about a person. */
  readonly orgId: string | null
  /** It is of no use after that many seconds, and is given up. */
  readonly usefulSeconds: number
}

/** A row of the outbox, ready to be inserted. */
export interface OutboxRow {
  readonly id: string
  readonly orgId: string | null
  readonly template: string
  readonly recipient: string
  readonly keyId: string
  readonly sealed: Uint8Array
  readonly usefulSeconds: number
}

/** The words that a mail's text is bound to. */
export const mailPlace = (id: string): ReadonlyArray<string> => ["mail", id]

export class Mail extends Context.Service<Mail, { readonly prepare: (letter: Letter) => OutboxRow }>()(
  "svc/mail/Mail"
) {
  static readonly layer = Layer.effect(
    Mail,
    Effect.map(KeyRing, (ring) =>
      Mail.of({
        prepare: ({ to, orgId, template, subject, text, usefulSeconds }) => {
          const id = randomUUIDv7()
          const { keyId, bytes } = ring.seal(mailPlace(id), Redacted.make(JSON.stringify({ subject, text })))
          return { id, orgId, template, recipient: to, keyId, sealed: bytes, usefulSeconds }
        }
      })
    )
  )
}

/**
 * The insertion, for a statement of its own or as a part of another: `with queued as (${insertMail(sql, row)}) ...`.
 * With `condition`, only where that holds: sql`exists (select from invited)`.
 */
export const insertMail = (sql: Sql, row: OutboxRow, condition?: Fragment): Fragment => sql`
  insert into mail_outbox (id, org_id, template, recipient, key_id, sealed, expires_at)
  select ${row.id}::uuid, ${row.orgId}::uuid, ${row.template}::text, ${row.recipient}::text, ${row.keyId}::text,
    ${row.sealed}::bytea, now() + make_interval(secs => ${row.usefulSeconds}::float8)
  where ${condition ?? sql`true`}
  on conflict do nothing`
