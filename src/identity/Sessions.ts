/** Signed-in sessions. A session's token is random and kept by its holder alone; the store has its digest. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Fragment } from "effect/sql/Statement"
import { digestOf } from "#src/access/Access.ts"
import { newSessionToken } from "#src/access/bootstrap.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { audited } from "./audit-cte.ts"
import type { Visitor } from "./visitor.ts"

export interface NewSession {
  readonly token: Redacted.Redacted
  readonly expiresAt: Date
}

export interface Session {
  readonly id: string
  readonly userId: string
  readonly email: string
  readonly name: string
  readonly hasPassword: boolean
  readonly method: string | null
  /** Seconds since its holder last proved who they are. */
  readonly provedSecondsAgo: number
}

export interface ListedSession {
  readonly id: string
  readonly method: string | null
  readonly address: string | null
  readonly userAgent: string | null
  readonly createdAt: Date
  readonly lastUsedAt: Date
  readonly expiresAt: Date
}

const longestUserAgent = 300
/** Of one user; the ones unused for longest end. */
const mostSessions = 100

export class Sessions extends Context.Service<
  Sessions,
  {
    /**
     * Always a new one: a token that somebody else could have planted is never made valid. The one that the same
     * browser had before ends.
     */
    readonly create: (
      userId: string,
      method: string,
      visitor: Visitor,
      before: Buffer | null
    ) => Effect.Effect<NewSession, StoreUnavailable>
    /** Being looked up is being used. */
    readonly find: (digest: Buffer) => Effect.Effect<Option.Option<Session>, StoreUnavailable>
    readonly byId: (id: string) => Effect.Effect<Option.Option<Session>, StoreUnavailable>
    /** Newest use first. */
    readonly list: (userId: string) => Effect.Effect<ReadonlyArray<ListedSession>, StoreUnavailable>
    /** False: the user has no such session. */
    readonly end: (userId: string, id: string, visitor: Visitor) => Effect.Effect<boolean, StoreUnavailable>
    /** Every session of the user; answers how many. */
    readonly endAll: (userId: string, visitor: Visitor) => Effect.Effect<number, StoreUnavailable>
    /** Its holder has just proved again who they are. */
    readonly proved: (session: Session, visitor: Visitor) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/identity/Sessions") {
  static readonly layer = Layer.effect(
    Sessions,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const find = Effect.fnUntraced(function* (which: Fragment) {
        const [row] = yield* repeatable(sql<Session>`
          select s.id, s.user_id as "userId", a.email, a.name, p.hash is not null as "hasPassword", s.method,
            extract(epoch from now() - s.authenticated_at)::float8 as "provedSecondsAgo"
          from session s join account a on a.id = s.user_id left join password p on p.user_id = a.id
          where ${which} and s.expires_at > now()`)
        return Option.fromUndefinedOr(row)
      })
      const ending = (userId: string, operation: string, visitor: Visitor) =>
        audited(sql, { operation, userId, credential: "session" }, visitor, "ended", sql`id::text`)
      return Sessions.of({
        create: Effect.fn("Sessions.create")(function* (userId, method, visitor, before) {
          const token = newSessionToken()
          const [row] = yield* repeatable(sql<{ readonly expires_at: Date }>`
            with ended as (delete from session where digest = ${before}::bytea),
            oldest as (
              delete from session where id in (
                select id from session where user_id = ${userId}::uuid and method is not null
                order by last_used_at desc offset ${mostSessions - 1}::int)
            ),
            made as (
            insert into session (id, digest, user_id, expires_at, method, address, user_agent)
            values (${randomUUIDv7()}::uuid, ${digestOf(token)}, ${userId}::uuid, now() + interval '30 days', ${method},
              ${visitor.address}::text, ${visitor.userAgent?.slice(0, longestUserAgent) ?? null}::text)
            on conflict (id) do update set expires_at = excluded.expires_at
            returning id, expires_at
            ), audited as (
              ${audited(sql, { operation: "auth.signIn", userId, credential: method }, visitor, "made", sql`id::text`)}
            )
            select expires_at from made`)
          if (row === undefined) return yield* Effect.die(new Error("an insertion answered no row"))
          return { token: Redacted.make(token), expiresAt: row.expires_at }
        }),
        find: Effect.fn("Sessions.find")(function* (digest) {
          const found = yield* find(sql`s.digest = ${digest}`)
          if (Option.isSome(found)) {
            yield* repeatable(sql`select svc_credential_used('session', ${found.value.id}::uuid)`)
          }
          return found
        }),
        byId: (id) => Effect.withSpan(find(sql`s.id = ${id}::uuid`), "Sessions.byId"),
        // Index: session_by_user.
        list: Effect.fn("Sessions.list")(function* (userId) {
          return yield* repeatable(sql<ListedSession>`
            select id, method, address, user_agent as "userAgent", created_at as "createdAt",
              last_used_at as "lastUsedAt", expires_at as "expiresAt"
            from session where user_id = ${userId}::uuid and expires_at > now() order by last_used_at desc, id desc`)
        }),
        end: Effect.fn("Sessions.end")(function* (userId, id, visitor) {
          const rows = yield* repeatable(sql`
            with ended as (
              delete from session where id = ${id}::uuid and user_id = ${userId}::uuid returning id
            ), audited as (${ending(userId, "sessions.end", visitor)})
            select id from ended`)
          return rows.length > 0
        }),
        endAll: Effect.fn("Sessions.endAll")(function* (userId, visitor) {
          const rows = yield* repeatable(sql`
            with ended as (delete from session where user_id = ${userId}::uuid returning id),
            audited as (${ending(userId, "auth.signOutEverywhere", visitor)})
            select id from ended`)
          return rows.length
        }),
        proved: Effect.fn("Sessions.proved")(function* ({ id, userId }, visitor) {
          const deed = { operation: "auth.proveAgain", userId, credential: "password" }
          yield* repeatable(sql`
            with proved as (
              update session set authenticated_at = now(), last_used_at = now() where id = ${id}::uuid returning id
            ), audited as (${audited(sql, deed, visitor, "proved", sql`id::text`)})
            select id from proved`)
        })
      })
    })
  )
}
