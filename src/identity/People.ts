/**
 * Accounts as the store keeps them: who has which address, which password and which identity elsewhere.
 *
 * An account exists only once its address is proved, by a link that was mailed there or by a provider that vouches
 * for it. So there is nothing to gain from signing up with somebody else's address, and nothing to learn from it.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { toDisplayName } from "#schemas/display-text.ts"
import { AppConfig } from "#src/config.ts"
import { insertMail, type OutboxRow } from "#src/mail/Mail.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { audited } from "./audit-cte.ts"
import type { Visitor } from "./visitor.ts"

export interface Person {
  readonly userId: string
  readonly email: string
  readonly name: string
}

/** Who does it, for the audit log: how they proved who they are, and from where. */
export interface By {
  readonly method: string
  readonly visitor: Visitor
}

export type Purpose = "sign_in" | "password_reset"

/** What the reader of a mail asked for before it was sent. */
export const TokenDetails = Schema.Struct({
  name: Schema.optionalKey(Schema.String),
  next: Schema.optionalKey(Schema.String)
})
export type TokenDetails = typeof TokenDetails.Type
const decodeDetails = Schema.decodeUnknownEffect(TokenDetails)

export interface MailedToken {
  readonly email: string
  readonly details: TokenDetails
}

export interface InvitationView {
  readonly organization: string
  readonly email: string
  readonly role: string
}

/** Mails for one address and purpose in an hour: nobody's mailbox is to be filled by us. */
const mailsPerHour = 5

export class People extends Context.Service<
  People,
  {
    readonly byEmail: (
      email: string
    ) => Effect.Effect<Option.Option<Person & { readonly hash: string | null }>, StoreUnavailable>
    readonly byId: (
      userId: string
    ) => Effect.Effect<Option.Option<Person & { readonly hash: string | null }>, StoreUnavailable>
    /**
     * Makes the account and its personal organization, unless the address has one; answers which it is. None: it has
     * none and may not make one.
     */
    readonly ensure: (
      email: string,
      name: string,
      by: By
    ) => Effect.Effect<Option.Option<Person & { readonly isNew: boolean }>, StoreUnavailable>
    /** Who is known under this subject of this issuer. */
    readonly byExternal: (
      issuer: string,
      subject: string
    ) => Effect.Effect<Option.Option<Person>, StoreUnavailable>
    readonly link: (
      userId: string,
      issuer: string,
      subject: string,
      by: By
    ) => Effect.Effect<void, StoreUnavailable>
    /**
     * Stores the token's digest together with the mail that holds it. For a password only if the address has an
     * account, for signing in only if it has one or may make one; never more than a few an hour. Whether it did is
     * nobody's business.
     */
    readonly mailToken: (
      purpose: Purpose,
      email: string,
      details: TokenDetails,
      token: { readonly digest: Buffer; readonly seconds: number },
      mail: OutboxRow,
      visitor: Visitor
    ) => Effect.Effect<void, StoreUnavailable>
    readonly findToken: (
      purpose: Purpose,
      digest: Buffer
    ) => Effect.Effect<Option.Option<MailedToken>, StoreUnavailable>
    /** Of several that use it at once, one has it. */
    readonly useToken: (
      purpose: Purpose,
      digest: Buffer
    ) => Effect.Effect<Option.Option<MailedToken>, StoreUnavailable>
    /**
     * Stores a password, ends every session of the account but `keep`, and every reset that is under way; tells the
     * owner by mail. With a mailed token it uses that in the same step: false, and nothing is done, if it is dead.
     */
    readonly setPassword: (
      userId: string,
      hash: string,
      how: { readonly keep: string | null; readonly token: Buffer | null },
      notice: OutboxRow,
      by: By
    ) => Effect.Effect<boolean, StoreUnavailable>
    readonly findInvitation: (
      digest: Buffer
    ) => Effect.Effect<Option.Option<InvitationView>, StoreUnavailable>
  }
>()("svc/identity/People") {
  static readonly layer = Layer.effect(
    People,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { billing, signUp } = yield* AppConfig
      /** Whether somebody with this address may make an account. */
      const mayJoin = (email: string) =>
        signUp === "open"
          ? sql`true`
          : sql`exists (select from invitation where email = ${email}::text and accepted_at is null
              and revoked_at is null and expires_at > now())`

      interface TokenRow {
        readonly email: string
        readonly details: unknown
      }
      const toToken = (rows: ReadonlyArray<TokenRow>) => {
        const [row] = rows
        if (row === undefined) return Effect.succeed(Option.none<MailedToken>())
        return Effect.map(Effect.orDie(decodeDetails(row.details)), (details) =>
          Option.some<MailedToken>({ email: row.email, details })
        )
      }

      type Known = Person & { readonly hash: string | null }

      return People.of({
        byEmail: Effect.fn("People.byEmail")(function* (email) {
          const [row] = yield* repeatable(sql<Known>`
            select a.id as "userId", a.email, a.name, p.hash
            from account a left join password p on p.user_id = a.id where a.email = ${email}`)
          return Option.fromUndefinedOr(row)
        }),
        byId: Effect.fn("People.byId")(function* (userId) {
          const [row] = yield* repeatable(sql<Known>`
            select a.id as "userId", a.email, a.name, p.hash
            from account a left join password p on p.user_id = a.id where a.id = ${userId}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        ensure: Effect.fn("People.ensure")(function* (email, name, { method, visitor }) {
          const userId = randomUUIDv7()
          // Forms and providers may say anything, and it is shown to others.
          const shown = toDisplayName(name) || (email.split("@", 1)[0] ?? email)
          const status = billing === "required" ? "unpaid" : "active"
          const [made] = yield* repeatable(sql<Person>`
            with person as (
              insert into account (id, email, name) select ${userId}::uuid, ${email}::text, ${shown}::text
              where ${mayJoin(email)}
              on conflict (email) do nothing returning id, email, name
            ), personal as (
              insert into organization (id, name, slug, is_personal, billing_status)
              select ${randomUUIDv7()}::uuid, name, ${personalSlug(email, userId)}::text, true, ${status}::text
              from person returning id
            ), audited as (
              ${audited(sql, { operation: "auth.signUp", userId, credential: method }, visitor, "person")}
            ), owner as (
              insert into member (org_id, id, user_id, role)
              select personal.id, ${randomUUIDv7()}::uuid, person.id, 'owner' from personal, person
            )
            select id as "userId", email, name from person`)
          if (made !== undefined) return Option.some({ ...made, isNew: true })
          const [found] = yield* repeatable(sql<Person>`
            select id as "userId", email, name from account where email = ${email}`)
          return found === undefined ? Option.none() : Option.some({ ...found, isNew: false })
        }),
        byExternal: Effect.fn("People.byExternal")(function* (issuer, subject) {
          const [row] = yield* repeatable(sql<Person>`
            with used as (
              update external_identity set last_used_at = now()
              where issuer = ${issuer} and subject = ${subject} returning user_id
            )
            select a.id as "userId", a.email, a.name from account a join used on used.user_id = a.id`)
          return Option.fromUndefinedOr(row)
        }),
        link: Effect.fn("People.link")(function* (userId, issuer, subject, { method, visitor }) {
          const deed = { operation: "auth.linkProvider", userId, credential: method }
          yield* repeatable(sql`
            with linked as (
              insert into external_identity (issuer, subject, user_id)
              values (${issuer}, ${subject}, ${userId}::uuid)
              on conflict (issuer, subject) do nothing returning user_id
            ), audited as (${audited(sql, deed, visitor, "linked")})
            select user_id from linked`)
        }),
        // Index: mail_token_email.
        mailToken: Effect.fn("People.mailToken")(function* (purpose, email, details, token, mail, visitor) {
          const operation = purpose === "sign_in" ? "auth.requestLink" : "auth.requestPasswordReset"
          yield* repeatable(sql`
            with made as (
              insert into mail_token (digest, purpose, email, details, expires_at)
              select ${token.digest}::bytea, ${purpose}::text, ${email}::text, ${sql.json(details)}::jsonb,
                now() + make_interval(secs => ${token.seconds}::int)
              where (exists (select from account where email = ${email}::text)
                  or (${purpose}::text = 'sign_in' and ${mayJoin(email)}))
                and (select count(*) from mail_token where email = ${email}::text and purpose = ${purpose}::text
                  and created_at > now() - interval '1 hour') < ${mailsPerHour}::int
              on conflict (digest) do nothing
              returning digest
            ), queued as (${insertMail(sql, mail, sql`exists (select from made)`)}),
            audited as (${audited(sql, { operation, credential: "none" }, visitor, "made")})
            select from made`)
        }),
        findToken: Effect.fn("People.findToken")(function* (purpose, digest) {
          return yield* toToken(
            yield* repeatable(sql<TokenRow>`
              select email, details from mail_token
              where digest = ${digest} and purpose = ${purpose} and expires_at > now()`)
          )
        }),
        useToken: Effect.fn("People.useToken")(function* (purpose, digest) {
          return yield* toToken(
            yield* repeatable(sql<TokenRow>`
              with used as (
                delete from mail_token where digest = ${digest} and purpose = ${purpose}
                returning email, details, expires_at
              )
              select email, details from used where expires_at > now()`)
          )
        }),
        setPassword: Effect.fn("People.setPassword")(function* (userId, hash, { keep, token }, notice, by) {
          const deed = { operation: "auth.setPassword", userId, credential: by.method }
          const rows = yield* repeatable(sql`
            with used as (
              delete from mail_token where digest = ${token}::bytea and purpose = 'password_reset'
                and expires_at > now() returning digest
            ), stored as (
              insert into password (user_id, hash)
              select ${userId}::uuid, ${hash}::text
              where ${token}::bytea is null or exists (select from used)
              on conflict (user_id) do update set hash = excluded.hash, changed_at = now()
              returning user_id
            ), ended as (
              delete from session where user_id = (select user_id from stored)
                and (${keep}::uuid is null or id <> ${keep}::uuid)
            ), dropped as (
              delete from mail_token where purpose = 'password_reset' and digest is distinct from ${token}::bytea
                and email = (select email from account where id = (select user_id from stored))
            ), queued as (${insertMail(sql, notice, sql`exists (select from stored)`)}),
            audited as (${audited(sql, deed, by.visitor, "stored")})
            select user_id from stored`)
          return rows.length > 0
        }),
        findInvitation: Effect.fn("People.findInvitation")(function* (digest) {
          const [row] = yield* repeatable(sql<InvitationView>`
            select o.name as organization, i.email, i.role
            from invitation i join organization o on o.id = i.org_id and o.deletion_requested_at is null
            where i.digest = ${digest} and i.accepted_at is null and i.revoked_at is null and i.expires_at > now()`)
          return Option.fromUndefinedOr(row)
        })
      })
    })
  )
}

/** Made of the address and of the account's own id: readable, and taken by nobody. */
const personalSlug = (email: string, userId: string): string => {
  const local = (email.split("@", 1)[0] ?? "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^[^a-z]+|-+$/g, "")
    .slice(0, 24)
  return `${local === "" ? "user" : local}-${userId.slice(-10)}`.replaceAll(/-+/g, "-")
}
