/**
 * Whose credential is this, and what may it do in the addressed organization? Asked on every request, in one round
 * trip that requests of the same moment share, so that a revoked key, a removed member or a changed role counts from
 * the next request on.
 */
import { hash } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { Role } from "#schemas/kind.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { batched } from "./batching.ts"
import type { Audience } from "./CurrentAudience.ts"

/**
 * A signed-in session, an API key of an organization, the access token of a grant to an agent, or the token of an app. What
 * an app calls is below `/v1/runtime`, and who it is has been found out there. `maintenance` is the control plane itself,
 * which carries out for a project what its settings allow: no request can present it.
 */
export type CredentialKind = "session" | "key" | "grant" | "app" | "maintenance"

export interface Credential {
  readonly kind: CredentialKind
  /** SHA-256 of the token. Tokens are random, so a fast digest keeps them, and the look-up leaks nothing by time. */
  readonly digest: Buffer
}

/** An agent, as the person who let it in decided. */
export interface Grant {
  readonly kind: "grant"
  readonly grantId: string
  /** Who let it in. */
  readonly userId: string
  readonly clientId: string
  /** As the client calls itself; nobody checked it. */
  readonly clientName: string
  readonly audience: Audience
  readonly role: "member" | "admin"
  /** Ids of the operations that it may call. */
  readonly scopes: ReadonlyArray<string>
}

export interface Identity {
  readonly credentialId: string
  readonly userId: string | null
  readonly lastUsedAt: Date | null
  /** When somebody last proved who they are; null where nobody did: a key, a session made on the server itself. */
  readonly provedAt: Date | null
  /** Absent for what is no agent's. */
  readonly grant: Grant | undefined
  /** The addressed organization; null when there is none for this credential. */
  readonly organization: {
    readonly id: string
    readonly slug: string
    readonly role: Role
    readonly billingStatus: string
  } | null
}

export const sessionCookie = "svc_session"
const keyForm = /^svc_[0-9a-f]{40}$/
const sessionForm = /^svcs_[0-9a-f]{64}$/
const accessTokenForm = /^svca_[0-9a-f]{64}$/

export const digestOf = (token: string): Buffer => hash("sha256", token, "buffer")

/**
 * Reads the credential of a request: `Authorization: Bearer ...` before the cookie. Whatever does not have the form
 * of a token is no credential; it never gets further.
 */
export const credentialOf = (
  authorization: string | undefined,
  cookie: string | undefined
): Option.Option<Credential> => {
  const bearer = /^Bearer ([\x21-\x7e]{1,200})$/i.exec(authorization ?? "")?.[1]
  if (bearer !== undefined) {
    if (keyForm.test(bearer)) return Option.some({ kind: "key", digest: digestOf(bearer) })
    if (accessTokenForm.test(bearer)) return Option.some({ kind: "grant", digest: digestOf(bearer) })
    // The operator's command line presents its session this way; a browser uses the cookie.
    if (sessionForm.test(bearer)) return Option.some({ kind: "session", digest: digestOf(bearer) })
    return Option.none()
  }
  if (authorization === undefined && cookie !== undefined && sessionForm.test(cookie)) {
    return Option.some({ kind: "session", digest: digestOf(cookie) })
  }
  return Option.none()
}

interface AccessRow {
  readonly ord: number
  readonly credential_id: string
  readonly user_id: string | null
  readonly last_used_at: Date | null
  readonly proved_at: Date | null
  readonly org_id: string | null
  readonly org_slug: string
  readonly role: Role
  readonly billing_status: string
  readonly granted: Omit<Grant, "kind" | "grantId" | "userId"> | null
}

interface Question {
  readonly credential: Credential
  readonly audience: Audience
  readonly addressed: string | null
}

/** A look that hangs must not hold up the requests behind it for long. */
const longestLook = "5 seconds"

/** Slugs and ids. */
const addressable = /^[a-z0-9-]{1,64}$/i

const identityOf = (row: AccessRow): Identity => ({
  credentialId: row.credential_id,
  userId: row.user_id,
  lastUsedAt: row.last_used_at,
  provedAt: row.proved_at,
  grant:
    row.granted === null || row.user_id === null
      ? undefined
      : { kind: "grant", grantId: row.credential_id, userId: row.user_id, ...row.granted },
  organization:
    row.org_id === null
      ? null
      : { id: row.org_id, slug: row.org_slug, role: row.role, billingStatus: row.billing_status }
})

export class Access extends Context.Service<
  Access,
  {
    /**
     * None: the credential does not hold, or not there. `addressed` is an organization's id or slug; with null, keys and
     * grants are identified in their own.
     */
    readonly identify: (
      credential: Credential,
      addressed: string | null,
      audience: Audience
    ) => Effect.Effect<Option.Option<Identity>, StoreUnavailable>
    /** The organizations a credential reaches. */
    readonly organizations: (
      credential: Credential["kind"],
      credentialId: string,
      userId: string | null
    ) => Effect.Effect<
      ReadonlyArray<{
        readonly id: string
        readonly slug: string
        readonly name: string
        readonly role: string
      }>,
      StoreUnavailable
    >
    /**
     * What people call the credential: the name of a key, and whose session it is or who made the key or let the agent in.
     * Of a grant also when it ends, unless its agent comes back before.
     */
    readonly describe: (
      credential: Credential["kind"],
      credentialId: string,
      userId: string | null
    ) => Effect.Effect<
      {
        readonly keyName: string | null
        readonly grantExpiresAt: Date | null
        readonly user: { readonly id: string; readonly email: string; readonly name: string } | null
      },
      StoreUnavailable
    >
    /** Notes that the credential was used, in the background and at most once a minute. */
    readonly used: (credential: Credential["kind"], identity: Identity) => Effect.Effect<void>
  }
>()("svc/access/Access") {
  static readonly layer = Layer.effect(
    Access,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      const background = yield* FiberSet.make()
      const identify = yield* batched(
        ({ credential, audience, addressed }: Question) =>
          `${audience} ${credential.kind} ${credential.digest.toString("hex")} ${addressed === null ? "" : `/${addressed}`}`,
        Effect.fnUntraced(function* (questions: ReadonlyArray<Question>) {
          const asked = questions.map(({ credential, audience, addressed }, ord) => ({
            ord,
            audience,
            kind: credential.kind,
            digest: credential.digest.toString("hex"),
            addressed
          }))
          const look = repeatable(sql<AccessRow>`
            select q.ord, a.*
            from jsonb_to_recordset(${sql.json(asked)}::jsonb) 
              as q(ord int, kind text, digest text, addressed text, audience text)
            cross join lateral svc_access(q.kind, decode(q.digest, 'hex'), q.addressed, q.audience) a`)
          const rows = yield* Effect.timeoutOrElse(look, {
            duration: longestLook,
            orElse: () =>
              Effect.fail(
                new StoreUnavailable({ message: `The state store did not answer in ${longestLook}` })
              )
          })
          const answers = questions.map((): Option.Option<Identity> => Option.none())
          for (const row of rows) answers[row.ord] = Option.some(identityOf(row))
          return answers
        })
      )
      return Access.of({
        identify: (credential, addressed, audience) =>
          identify({
            credential,
            audience,
            // What can name no organization names none, and gets no further than this.
            addressed: addressed === null || addressable.test(addressed) ? addressed : ""
          }),
        organizations: (credential, credentialId, userId) =>
          repeatable(
            credential === "grant"
              ? engine`select o.id, o.slug, o.name, g.role from agent_grant g join organization o on o.id = g.org_id
                  where g.id = ${credentialId}::uuid`
              : credential === "key"
                ? engine`
                  select o.id, o.slug, o.name, case when m.role = 'member' then m.role else k.role end as role
                  from api_key k join organization o on o.id = k.org_id
                  left join member m on m.user_id = k.created_by and m.org_id = k.org_id
                  where k.id = ${credentialId}::uuid`
                : engine`select o.id, o.slug, o.name, m.role from member m join organization o on o.id = m.org_id
                  where m.user_id = ${userId}::uuid order by o.slug`
          ),
        describe: Effect.fnUntraced(function* (credential, credentialId, userId) {
          const [row] = yield* repeatable(engine<{
            readonly keyName: string | null
            readonly grantExpiresAt: Date | null
            readonly id: string | null
            readonly email: string | null
            readonly name: string | null
          }>`
            select k.name as "keyName", g.expires_at as "grantExpiresAt", a.id, a.email, a.name
            from (select) as one
            left join api_key k on k.id = ${credential === "key" ? credentialId : null}::uuid
            left join agent_grant g on g.id = ${credential === "grant" ? credentialId : null}::uuid
            left join account a on a.id = ${userId}::uuid`)
          const { keyName = null, grantExpiresAt = null, id = null, email = null, name = null } = row ?? {}
          return {
            keyName,
            grantExpiresAt,
            user: id === null || email === null || name === null ? null : { id, email, name }
          }
        }),
        used: (credential, identity) =>
          identity.lastUsedAt !== null && Date.now() - identity.lastUsedAt.getTime() < 60_000
            ? Effect.void
            : Effect.asVoid(
                FiberSet.run(
                  background,
                  orUnavailable(
                    sql`select svc_credential_used(${credential}, ${identity.credentialId}::uuid)`
                  ).pipe(
                    Effect.catch((error) =>
                      Effect.logDebug("the use of a credential could not be noted", error)
                    )
                  )
                )
              )
      })
    })
  )
}
