/**
 * The first start on an empty store: an owner, an organization, an admin API key and the operator's session. There
 * is no default password; what is made here is random and shown once.
 *
 * Digests are all that the store keeps, so the tokens are put where the operator finds them *before* the transaction
 * commits. A crash in between leaves tokens that no store knows and a store that is still empty: the next start makes
 * new ones. The other order could leave an owner whom nobody can be.
 */
import { randomBytes, randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"
import { Db, orUnavailable, transaction } from "#src/store/Db.ts"
import { digestOf } from "./Access.ts"

export interface Bootstrap {
  readonly organization: string
  readonly apiKey: Redacted.Redacted
  /** Owner's session, for what keys may not do. Presented as a bearer token or as the session cookie. */
  readonly session: Redacted.Redacted
  /** Signs the owner in in a browser, once and within a day. */
  readonly signInUrl: Redacted.Redacted
}

export class CredentialsNotKept extends Schema.TaggedError<CredentialsNotKept>()("CredentialsNotKept", {
  message: Schema.String
}) {}

/** Where tokens go before the store knows them. By default nowhere: whoever calls has them in memory. */
export const Keeper = Context.Reference<(made: Bootstrap) => Effect.Effect<void, CredentialsNotKept>>(
  "svc/access/Keeper",
  { defaultValue: () => () => Effect.void }
)

/** Any fixed number does; it only has to be the same in every process. */
const lockId = 7_310_577_206
const slug = "main"

/** Random bytes that an API key is made of. */
export const apiKeyBytes = 20
export const apiKeyOf = (random: Buffer): string => `svc_${random.toString("hex")}`
export const newApiKey = (): string => apiKeyOf(randomBytes(apiKeyBytes))
export const newSessionToken = (): string => `svcs_${randomBytes(32).toString("hex")}`

type Sql = Db["Service"]["engine"]

/**
 * An admin key of the organization, a session of the user and a link that makes another one in a browser, known to the
 * store once the transaction commits.
 */
const issue = Effect.fnUntraced(function* (
  sql: Sql,
  org: { readonly id: string; readonly slug: string },
  user: string,
  name: string
) {
  const { publicUrl } = yield* AppConfig
  const [key, token, link] = [newApiKey(), newSessionToken(), randomBytes(32).toString("hex")]
  yield* sql`insert into api_key (org_id, id, name, key_prefix, digest, role, created_by)
    values (${org.id}, ${randomUUIDv7()}, ${name}, ${`${key.slice(0, 8)}...`}, ${digestOf(key)}, 'admin', ${user})`
  yield* sql`insert into session (id, digest, user_id, expires_at)
    values (${randomUUIDv7()}, ${digestOf(token)}, ${user}, now() + interval '30 days')`
  // As if it had been mailed.
  yield* sql`insert into mail_token (digest, purpose, email, details, expires_at)
    select ${digestOf(link)}, 'sign_in', email, ${sql.json({ next: "/app/" })}::jsonb,
      now() + interval '1 day'
    from account where id = ${user}`
  const made: Bootstrap = {
    organization: org.slug,
    apiKey: Redacted.make(key),
    session: Redacted.make(token),
    signInUrl: Redacted.make(`${publicUrl}/sign-in/link?token=${link}`)
  }
  const keep = yield* Keeper
  yield* keep(made)
  return made
})

/** Undefined: the store has organizations already. Of several processes that start at once, one makes it. */
export const bootstrap = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { billing } = yield* AppConfig
  return yield* transaction(
    sql,
    Effect.gen(function* () {
      yield* sql`select pg_advisory_xact_lock(${lockId}::bigint)`
      const existing = yield* sql`select from organization limit 1`
      if (existing.length > 0) return undefined
      const [id, user] = [randomUUIDv7(), randomUUIDv7()]
      yield* sql`insert into organization (id, name, slug, is_personal, billing_status)
        values (${id}, 'Main', ${slug}, true, ${billing === "required" ? "unpaid" : "active"})`
      yield* sql`insert into account (id, email, name) values (${user}, 'operator@localhost', 'Operator')`
      yield* sql`insert into member (org_id, id, user_id, role) values (${id}, ${randomUUIDv7()}, ${user}, 'owner')`
      return yield* issue(sql, { id, slug }, user, "first")
    })
  )
}).pipe(orUnavailable, Effect.withSpan("bootstrap"))

/**
 * New credentials of the organization's first owner, for whoever operates the machine and has lost theirs. Access to
 * the store itself is what allows it. Undefined: there is no such organization, or nobody owns it.
 */
export const reissue = Effect.fn("reissue")(function* (organization: string) {
  const { engine: sql } = yield* Db
  return yield* transaction(
    sql,
    Effect.gen(function* () {
      const [owner] = yield* sql<{ readonly id: string; readonly user_id: string }>`
        select o.id, m.user_id from organization o join member m on m.org_id = o.id and m.role = 'owner'
        where o.slug = ${organization} order by m.id limit 1`
      if (owner === undefined) return undefined
      const made = yield* issue(sql, { id: owner.id, slug: organization }, owner.user_id, "operator")
      yield* sql`insert into audit_log (org_id, principal, credential, operation, resource, request_id, address, outcome)
        values (${owner.id}, 'system', 'none', 'admin.credentials', null, ${randomUUIDv7()}, null, 201)`
      return made
    })
  )
}, orUnavailable)

/** Which of these tokens the store knows. */
export const known = Effect.fn("known")(function* (tokens: ReadonlyArray<string>) {
  const { engine: sql } = yield* Db
  const digests = new Map(tokens.map((token) => [digestOf(token).toString("hex"), token]))
  const rows = yield* sql<{ readonly digest: string }>`
    with asked as (select decode(value, 'hex') as digest
      from jsonb_array_elements_text(${sql.json([...digests.keys()])}::jsonb))
    select encode(k.digest, 'hex') as digest from api_key k join asked using (digest) where k.revoked_at is null
    union all
    select encode(s.digest, 'hex') from session s join asked using (digest) where s.expires_at > now()`
  return new Set(rows.flatMap(({ digest }) => digests.get(digest) ?? []))
}, orUnavailable)
