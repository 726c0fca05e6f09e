/** Invitations: seven days, one use, bound to an e-mail address. The store keeps a digest of the token only. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Role } from "#schemas/kind.ts"
import { digestOf } from "#src/access/Access.ts"
import { insertMail, type Letter, Mail } from "#src/mail/Mail.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { liveOrganization } from "./deletion.ts"

export interface Invitation {
  readonly id: string
  readonly email: string
  readonly role: Role
  readonly status: "pending" | "accepted" | "revoked" | "expired"
  readonly expiresAt: Date
}

export interface Joined {
  readonly id: string
  readonly name: string
  readonly slug: string
  readonly role: Role
}

/** What the mail of an invitation tells. */
export interface Invited {
  readonly organization: string
  /** Name of whoever invites. */
  readonly inviter: string
  readonly token: Redacted.Redacted
  readonly days: number
}

/** Why an invitation is not accepted. */
export type Declined = "unknown" | "accepted" | "revoked" | "expired" | "not_meant" | "member"

const lifetimeDays = 7
const tokenForm = /^svci_[0-9a-f]{64}$/

/** How addresses are compared: the same mailbox written in two ways is one. */
export const normalizeEmail = (email: string): string => email.normalize("NFKC").toLowerCase()

export class Invitations extends Context.Service<
  Invitations,
  {
    /** The open ones, oldest first. */
    readonly list: (orgId: string) => Effect.Effect<ReadonlyArray<Invitation>, StoreUnavailable>
    /**
     * Stores the invitation together with its mail. None: the address belongs to a member. An open invitation for the
     * address is renewed, and its first token dies. What was made under the same reservation before is answered, and
     * mailed once.
     */
    readonly create: (
      orgId: string,
      invited: { readonly email: string; readonly role: "admin" | "member" },
      caller: string,
      actor: Actor,
      reservation: Reservation,
      write: (invited: Invited) => Omit<Letter, "to" | "orgId" | "usefulSeconds">
    ) => Effect.Effect<Option.Option<Invitation>, StoreUnavailable>
    /** Repeating it changes nothing. Accepted ones cannot be taken back: false. */
    readonly revoke: (orgId: string, id: string, actor: Actor) => Effect.Effect<boolean, StoreUnavailable>
    /** `again`: the same request may have accepted it before. */
    readonly accept: (
      token: string,
      userId: string,
      actor: Actor,
      again: boolean
    ) => Effect.Effect<Joined | Declined, StoreUnavailable>
  }
>()("svc/organizations/Invitations") {
  static readonly layer = Layer.effect(
    Invitations,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const mail = yield* Mail

      const find = (token: string, userId: string) =>
        repeatable(sql<{
          readonly orgId: string
          readonly id: string
          readonly status: Invitation["status"]
          readonly meant: boolean
        }>`
          select org_id as "orgId", id, status, meant from svc_invitation(${digestOf(token)}, ${userId}::uuid)`)

      const join = (orgId: string, id: string, userId: string, actor: Actor) => {
        const gate = inOrg(sql, orgId)
        return orUnavailable(sql<Joined>`
          with here as materialized (${liveOrganization(sql, orgId)}),
          used as (
            update invitation i set accepted_at = now(), accepted_by = ${userId}::uuid
            where i.org_id = ${orgId}::uuid and i.id = ${id}::uuid and ${gate} and exists (select from here)
              and i.accepted_at is null and i.revoked_at is null and i.expires_at > now()
              and not exists (select from member m where m.org_id = i.org_id and m.user_id = ${userId}::uuid)
              -- Whoever invited must be one who may invite today.
              and exists (select from member m where m.org_id = i.org_id and m.user_id = i.invited_by
                and m.role in ('owner', 'admin'))
            returning i.id, i.role
          ), joined as (
            insert into member (org_id, id, user_id, role)
            select ${orgId}::uuid, ${randomUUIDv7()}::uuid, ${userId}::uuid, u.role from used u where ${gate}
            returning role
          ), audited as (${auditOf(sql, orgId, actor, "used")})
          select o.id, o.name, o.slug, j.role from joined j join organization o on o.id = ${orgId}::uuid where ${gate}`)
      }

      return Invitations.of({
        list: Effect.fn("Invitations.list")(function* (orgId) {
          return yield* repeatable(sql<Invitation>`
            select ${columns(sql)} from invitation i
            where i.org_id = ${orgId}::uuid and i.accepted_at is null and i.revoked_at is null
              and i.expires_at > now() and ${inOrg(sql, orgId)}
            order by i.created_at, i.id`)
        }),
        create: Effect.fn("Invitations.create")(function* (
          orgId,
          { email, role },
          caller,
          actor,
          reservation,
          write
        ) {
          const gate = inOrg(sql, orgId)
          const token = `svci_${randomBytesOf(reservation, "invitation", 32).toString("hex")}`
          if (reservation.again) {
            const [before] = yield* repeatable(sql<Invitation>`
              select i.id, i.email, i.role, i.expires_at as "expiresAt", case when i.accepted_at is not null then 'accepted'
                when i.revoked_at is not null then 'revoked' else 'pending' end as status
              from invitation i
              where i.org_id = ${orgId}::uuid and ${gate}
                and (i.digest = ${digestOf(token)}::bytea or i.id = ${reservation.uid}::uuid)`)
            if (before !== undefined) return Option.some(before)
          }
          const [about] = yield* repeatable(sql<{ readonly organization: string; readonly inviter: string }>`
            select o.name as organization, m.name as inviter
            from organization o join svc_members() m on m.user_id = ${caller}::uuid
            where o.id = ${orgId}::uuid and ${gate}`)
          if (about === undefined) return Option.none()
          const letter = mail.prepare({
            ...write({ ...about, token: Redacted.make(token), days: lifetimeDays }),
            to: email,
            orgId,
            usefulSeconds: lifetimeDays * 86_400
          })
          const [invitation] = yield* orUnavailable(sql<Invitation>`
            with here as materialized (${liveOrganization(sql, orgId)}),
            i as (
              insert into invitation (org_id, id, email, role, digest, invited_by, expires_at)
              select ${orgId}::uuid, ${reservation.uid}::uuid, ${email}::text, ${role}::text, ${digestOf(token)}::bytea,
                ${caller}::uuid, now() + ${lifetimeDays}::int * interval '1 day'
              from here where ${gate}
                and not exists (select from svc_members() m where lower(normalize(m.email, nfkc)) = ${email}::text)
              on conflict (org_id, email) where accepted_at is null and revoked_at is null
              do update set role = excluded.role, digest = excluded.digest, invited_by = excluded.invited_by,
                created_at = now(), expires_at = excluded.expires_at
              returning *
            ), queued as (${insertMail(sql, letter, sql`exists (select from i) and ${gate}`)}),
            audited as (${auditOf(sql, orgId, actor, "i")})
            select ${columns(sql)} from i`)
          return Option.fromUndefinedOr(invitation)
        }),
        revoke: Effect.fn("Invitations.revoke")(function* (orgId, id, actor) {
          const rows = yield* orUnavailable(sql`
            with i as (
              update invitation set revoked_at = coalesce(revoked_at, now())
              where org_id = ${orgId}::uuid and id = ${id}::uuid and accepted_at is null and ${inOrg(sql, orgId)}
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "i")})
            select id from i`)
          return rows.length > 0
        }),
        accept: Effect.fn("Invitations.accept")(function* (token, userId, actor, again) {
          if (!tokenForm.test(token)) return "unknown"
          const [found] = yield* find(token, userId)
          if (found === undefined) return "unknown"
          if (!found.meant) return "not_meant"
          if (found.status === "accepted" && again) {
            const [before] = yield* repeatable(sql<Joined>`
              select o.id, o.name, o.slug, m.role
              from invitation i join organization o on o.id = i.org_id
              join member m on m.org_id = i.org_id and m.user_id = i.accepted_by
              where i.org_id = ${found.orgId}::uuid and i.id = ${found.id}::uuid and i.accepted_by = ${userId}::uuid
                and ${inOrg(sql, found.orgId)}`)
            return before ?? found.status
          }
          if (found.status !== "pending") return found.status
          const [joined] = yield* join(found.orgId, found.id, userId, actor)
          if (joined !== undefined) return joined
          // Something changed meanwhile; what is there now says what.
          const [now] = yield* find(token, userId)
          if (now === undefined) return "unknown"
          if (now.status !== "pending") return now.status
          const [member] = yield* repeatable(sql`
            select from member where org_id = ${found.orgId}::uuid and user_id = ${userId}::uuid
              and ${inOrg(sql, found.orgId)}`)
          return member === undefined ? "revoked" : "member"
        })
      })
    })
  )
}

const columns = (sql: Sql) => sql`
  i.id, i.email, i.role, 'pending' as status, i.expires_at as "expiresAt"`
