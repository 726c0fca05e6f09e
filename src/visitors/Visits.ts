/**
 * How a browser is let in to a protected host. Whoever is signed in to the platform gets a code for the host, which takes
 * it, once, from the browser that set out for it; from then on that browser has a visit, by which the host makes tickets as
 * long as the person may see the environment and stays signed in. Each step asks the store again.
 */
import { randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { AccessMode } from "#schemas/access-policy.ts"
import { digestOf } from "#src/access/Access.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Person } from "./tickets.ts"

/** A protected host as the page of the platform shows it, with what it is to somebody. */
export interface Destination {
  readonly host: string
  readonly access: AccessMode
  readonly environment: string
  readonly project: string
  readonly organization: string
  /** Of the organization. */
  readonly member: boolean
  readonly allowed: boolean
}

/** Where somebody wants to go, as the host they come from says. */
export interface Way {
  readonly host: string
  /** SHA-256 of a cookie that the host gave the browser. */
  readonly challenge: string
  readonly returnPath: string
}

export interface Visit extends Person {
  readonly orgId: string
  readonly environmentUid: string
}

/** For the way through the browser. */
const codeSeconds = 60
/** A browser that comes back later goes through the platform again. */
export const visitSeconds = 86_400
/** Of one session; the oldest go. */
const mostCodes = 20

const codeForm = /^svcv_[0-9a-f]{64}$/
const cookieForm = /^[0-9a-f]{64}$/
const challengeForm = /^[A-Za-z0-9_-]{43}$/
/** A host name as the edge has it: without port, in lower case. */
const hostForm = /^(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+$/

const newSecret = () => Redacted.make(randomBytes(32).toString("hex"))
const digest = (secret: Redacted.Redacted) => digestOf(Redacted.value(secret))

/** What a browser keeps while it is on its way, and what goes along in the address instead of it. */
export const newState = newSecret
export const isState = (text: string): boolean => cookieForm.test(text)
export const challengeOf = (state: Redacted.Redacted): string => digest(state).toString("base64url")
export const isChallenge = (text: string): boolean => challengeForm.test(text)

export class Visits extends Context.Service<
  Visits,
  {
    /** None: no environment is reached under this name. `userId` null: nobody is signed in. */
    readonly destination: (
      host: string,
      userId: string | null
    ) => Effect.Effect<Option.Option<Destination>, StoreUnavailable>
    /** A code that brings the person to the host. None: they may not see what is there, or are signed out. */
    readonly issueCode: (
      session: { readonly id: string; readonly userId: string },
      way: Way
    ) => Effect.Effect<Option.Option<Redacted.Redacted>, StoreUnavailable>
    /**
     * Takes the code, whatever comes of it. None: it was used, is too old, is for another host or another browser, or
     * the person may not see what is there any more.
     */
    readonly redeem: (
      code: string,
      by: { readonly host: string; readonly state: string }
    ) => Effect.Effect<
      Option.Option<{
        readonly visit: Visit
        readonly cookie: Redacted.Redacted
        readonly returnPath: string
      }>,
      StoreUnavailable
    >
    /** Whose visit the cookie is. None: it has ended, or they may not see what is there any more. */
    readonly find: (cookie: string, host: string) => Effect.Effect<Option.Option<Visit>, StoreUnavailable>
  }
>()("svc/visitors/Visits") {
  static readonly layer = Layer.effect(
    Visits,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db

      return Visits.of({
        destination: Effect.fn("Visits.destination")(function* (host, userId) {
          if (!hostForm.test(host)) return Option.none()
          const [row] = yield* repeatable(sql<Destination>`
            select h.hostname as host, s.access, e.name as environment, p.name as project, o.name as organization,
              exists (select from member m where m.user_id = ${userId}::uuid and m.org_id = h.org_id) as member,
              ${userId}::uuid is not null and svc_may_visit(h.org_id, h.environment_uid, ${userId}::uuid) as allowed
            from edge_host h
            join edge_site s on s.org_id = h.org_id and s.environment_uid = h.environment_uid
            join resource e on e.org_id = h.org_id and e.uid = h.environment_uid
            join resource p on p.org_id = e.org_id and p.uid = e.project_id
            join organization o on o.id = h.org_id
            where h.hostname = ${host}`)
          return Option.fromUndefinedOr(row)
        }),
        issueCode: Effect.fn("Visits.issueCode")(function* (session, { host, challenge, returnPath }) {
          if (!hostForm.test(host) || !isChallenge(challenge)) return Option.none()
          const code = Redacted.make(`svcv_${Redacted.value(newSecret())}`)
          const rows = yield* repeatable(sql`
            with oldest as (
              delete from visit_code where digest in (
                select digest from visit_code where session_id = ${session.id}::uuid
                order by expires_at desc offset ${mostCodes - 1}::int)
            )
            insert into visit_code (org_id, digest, environment_uid, hostname, user_id, session_id, challenge,
              return_path, expires_at)
            select h.org_id, ${digest(code)}::bytea, h.environment_uid, h.hostname, s.user_id, s.id,
              ${Buffer.from(challenge, "base64url")}::bytea, ${returnPath},
              now() + make_interval(secs => ${codeSeconds}::float8)
            from edge_host h join session s on s.id = ${session.id}::uuid
            where h.hostname = ${host} and s.user_id = ${session.userId}::uuid and s.expires_at > now()
              and svc_may_visit(h.org_id, h.environment_uid, s.user_id)
            on conflict (digest) do update set expires_at = excluded.expires_at
            returning 1`)
          return rows.length > 0 ? Option.some(code) : Option.none()
        }),
        redeem: Effect.fn("Visits.redeem")(function* (code, { host, state }) {
          if (!codeForm.test(code)) return Option.none()
          const cookie = newSecret()
          // Not repeated: what became of a lost answer is not known, and the visitor begins again at no cost.
          const [row] = yield* orUnavailable(sql<Visit & { readonly returnPath: string }>`
            with taken as (delete from visit_code where digest = ${digestOf(code)}::bytea returning *),
            good as (
              select t.* from taken t
              join edge_host h on h.hostname = t.hostname and h.org_id = t.org_id
                and h.environment_uid = t.environment_uid
              join session s on s.id = t.session_id and s.expires_at > now()
              where t.expires_at > now() and t.hostname = ${host} and t.challenge = ${digestOf(state)}::bytea
                and svc_may_visit(t.org_id, t.environment_uid, t.user_id)
            ), made as (
              insert into visit (org_id, digest, environment_uid, hostname, user_id, session_id, expires_at)
              select org_id, ${digest(cookie)}::bytea, environment_uid, hostname, user_id, session_id,
                now() + make_interval(secs => ${visitSeconds}::float8)
              from good
              on conflict (session_id, hostname) do update set org_id = excluded.org_id, digest = excluded.digest,
                environment_uid = excluded.environment_uid, user_id = excluded.user_id,
                expires_at = excluded.expires_at
              returning org_id, environment_uid, user_id
            )
            select m.org_id as "orgId", m.environment_uid as "environmentUid", m.user_id as "userId", a.email,
              g.return_path as "returnPath"
            from made m join account a on a.id = m.user_id, good g`)
          if (row === undefined) return Option.none()
          const { returnPath, ...visit } = row
          return Option.some({ visit, cookie, returnPath })
        }),
        // By primary keys.
        find: Effect.fn("Visits.find")(function* (cookie, host) {
          if (!cookieForm.test(cookie)) return Option.none()
          const [row] = yield* repeatable(sql<Visit>`
            select v.org_id as "orgId", v.environment_uid as "environmentUid", v.user_id as "userId", a.email
            from visit v
            join edge_host h on h.hostname = v.hostname and h.org_id = v.org_id
              and h.environment_uid = v.environment_uid
            join session s on s.id = v.session_id and s.expires_at > now()
            join account a on a.id = v.user_id
            where v.digest = ${digestOf(cookie)}::bytea and v.hostname = ${host} and v.expires_at > now()
              and svc_may_visit(v.org_id, v.environment_uid, v.user_id)`)
          return Option.fromUndefinedOr(row)
        })
      })
    })
  )
}
