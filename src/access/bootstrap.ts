/**
 * The first start on an empty store: an owner, an organization, an admin API key and the operator's session. There
 * is no default password; what is made here is random and shown once.
 */
import { randomBytes, randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { Db, orUnavailable, transaction } from "#src/store/Db.ts"
import { digestOf } from "./Access.ts"

export interface Bootstrap {
  readonly organization: string
  readonly apiKey: Redacted.Redacted
  /** Owner's session, for what keys may not do. Presented as a bearer token or as the session cookie. */
  readonly session: Redacted.Redacted
}

/** Any fixed number does; it only has to be the same in every process. */
const lockId = 7_310_577_206
const slug = "main"

export const newApiKey = (): string => `svc_${randomBytes(20).toString("hex")}`
export const newSessionToken = (): string => `svcs_${randomBytes(32).toString("hex")}`

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
      const [org, user] = [randomUUIDv7(), randomUUIDv7()]
      const [key, token] = [newApiKey(), newSessionToken()]
      yield* sql`insert into organization (id, name, slug, is_personal, billing_status)
        values (${org}, 'Main', ${slug}, true, ${billing === "required" ? "unpaid" : "active"})`
      yield* sql`insert into account (id, email, name) values (${user}, 'operator@localhost', 'Operator')`
      yield* sql`insert into member (org_id, id, user_id, role) values (${org}, ${randomUUIDv7()}, ${user}, 'owner')`
      yield* sql`insert into api_key (org_id, id, name, key_prefix, digest, role, created_by)
        values (${org}, ${randomUUIDv7()}, 'first', ${`${key.slice(0, 8)}...`}, ${digestOf(key)}, 'admin', ${user})`
      yield* sql`insert into session (id, digest, user_id, expires_at)
        values (${randomUUIDv7()}, ${digestOf(token)}, ${user}, now() + interval '30 days')`
      const made: Bootstrap = {
        organization: slug,
        apiKey: Redacted.make(key),
        session: Redacted.make(token)
      }
      return made
    })
  )
}).pipe(orUnavailable, Effect.withSpan("bootstrap"))
