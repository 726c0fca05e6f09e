/**
 * Authorization requests (RFC 6749, section 4.1.1; RFC 7636; RFC 8707) that wait for a person's decision. A program sends
 * a browser with one; the person who sits there signs in if need be, and decides on the screen, which knows the request by
 * its id. A request is decided once, within ten minutes.
 */
import { randomUUID, randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Audience } from "#src/access/CurrentAudience.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { AppConfig } from "#src/config.ts"
import { insertMail, Mail } from "#src/mail/Mail.ts"
import * as messages from "#src/mail/messages.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Clients, isFirstParty } from "./Clients.ts"
import { isDocumentAddress } from "./client-documents.ts"
import { type AuthorizationRefused, NotPermitted, RequestGone, type TooManyRequests } from "./errors.ts"
import { parseRequest } from "./parse-request.ts"
import { withPatience } from "./patience.ts"
import { withParams } from "./redirects.ts"
import { requestLimit } from "./request-limit.ts"
import { type GrantRole, leastRole, reaches } from "./scopes.ts"
import { newCode } from "./tokens.ts"

export interface PendingRequest {
  readonly id: string
  readonly client: {
    readonly id: string
    readonly name: string
    /** The id is that of a program of ours, which any program can give. The name of any other is what it calls itself. */
    readonly firstParty: boolean
  }
  /** Where the answer goes. */
  readonly redirectUri: string
  readonly audience: Audience
  /** The role that it asks for; what is granted may be lower, as far as the scopes go with it. */
  readonly role: GrantRole
  /** Ids of the operations that it asks for, in order; what is granted may be fewer. */
  readonly scopes: ReadonlyArray<string>
  readonly expiresAt: Date
}

export interface Decision {
  readonly userId: string
  /** The session in which it was made, which must hold still. */
  readonly sessionId: string
  readonly orgId: string
  readonly role: GrantRole
  readonly scopes: ReadonlyArray<string>
}

const requestSeconds = 600
/** For the way through the browser. */
const codeSeconds = 60
/** The mail that says what was let in. */
const noticeSeconds = 7 * 86_400

const gone = new RequestGone({
  message: "This request was decided already or is too old. Start again in the program that asked."
})
const isId = (text: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)

export class AuthorizationRequests extends Context.Service<
  AuthorizationRequests,
  {
    /**
     * Takes the query of an authorization request, and answers the id that the screen goes on with. What is wrong with it
     * comes with the address to send the browser to, where it may be sent to one. `userId` says who is signed in there, if
     * anybody is: strangers share a limit, and none of them can use up that of a person.
     */
    readonly begin: (
      query: URLSearchParams,
      userId?: string
    ) => Effect.Effect<{ readonly id: string }, AuthorizationRefused | TooManyRequests | StoreUnavailable>
    /** None: it was decided, is too old, or never was. */
    readonly get: (id: string) => Effect.Effect<Option.Option<PendingRequest>, StoreUnavailable>
    /**
     * Lets the client in. Answers where the browser goes: the client's address with a code, once. Role and scopes are
     * those of the request or less; the person's role in the organization must reach the role.
     */
    readonly approve: (
      id: string,
      decision: Decision
    ) => Effect.Effect<string, RequestGone | NotPermitted | StoreUnavailable>
    /** Answers where the browser goes: the client's address with `access_denied`. */
    readonly deny: (id: string) => Effect.Effect<string, RequestGone | StoreUnavailable>
  }
>()("svc/agents/AuthorizationRequests") {
  static readonly layer = Layer.effect(
    AuthorizationRequests,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { publicUrl: issuer } = yield* AppConfig
      const clients = yield* Clients
      const mail = yield* Mail
      const limit = yield* requestLimit
      const parse = parseRequest(clients, issuer)

      const get = Effect.fn("AuthorizationRequests.get")(function* (id: string) {
        if (!isId(id)) return Option.none<PendingRequest>()
        const [row] = yield* withPatience(
          repeatable(sql<
            Omit<PendingRequest, "client"> & { readonly clientId: string; readonly clientName: string }
          >`
          select id, client_id as "clientId", client_name as "clientName", redirect_uri as "redirectUri", audience, role,
            scopes, expires_at as "expiresAt"
          from authorization_request where id = ${id}::uuid and expires_at > now()`)
        )
        return Option.map(
          Option.fromUndefinedOr(row),
          ({ clientId, clientName, ...request }): PendingRequest => ({
            ...request,
            client: { id: clientId, name: clientName, firstParty: isFirstParty(clientId) }
          })
        )
      })

      /** The answer to the client (RFC 9207: it says whose answer it is). */
      const answerTo = (
        { redirectUri, state }: { readonly redirectUri: string; readonly state: string | null },
        params: Readonly<Record<string, string>>
      ) => withParams(redirectUri, { ...params, state, iss: issuer })

      /** Names for the mail; undefined: the person is no member of it. */
      const membership = Effect.fnUntraced(function* ({ userId, orgId }: Decision) {
        const [row] = yield* withPatience(
          repeatable(sql<{ readonly email: string; readonly organization: string }>`
          select a.email, o.name as organization
          from member m join account a on a.id = m.user_id join organization o on o.id = m.org_id
          where m.org_id = ${orgId}::uuid and m.user_id = ${userId}::uuid and o.deletion_requested_at is null`)
        )
        return row
      })

      return AuthorizationRequests.of({
        begin: Effect.fn("AuthorizationRequests.begin")(function* (query, userId) {
          yield* limit.fromNetwork
          if (isDocumentAddress(query.get("client_id") ?? "")) yield* limit.ofDocuments
          const asked = yield* parse(query)
          yield* limit.pending(userId)
          const id = randomUUID()
          yield* withPatience(
            repeatable(sql`
            insert into authorization_request
              (id, client_id, client_name, redirect_uri, state, challenge, audience, role, scopes, expires_at)
            values (${id}::uuid, ${asked.client.id}, ${asked.client.name}, ${asked.redirectUri}, ${asked.state}::text,
              ${asked.challenge}, ${asked.client.audience}, ${asked.role},
              array(select jsonb_array_elements_text(${sql.json(asked.scopes)}::jsonb)),
              now() + make_interval(secs => ${requestSeconds}::float8))
            on conflict (id) do nothing`)
          )
          return { id }
        }),
        get,
        approve: Effect.fn("AuthorizationRequests.approve")(function* (id, decision) {
          const pending = yield* get(id)
          if (Option.isNone(pending)) return yield* gone
          const { client, role, scopes } = pending.value
          const fault = decisionFault({ role, scopes }, decision)
          if (fault !== undefined) return yield* new NotPermitted({ message: fault })
          const member = isId(decision.orgId) ? yield* membership(decision) : undefined
          if (member === undefined) return yield* notAMember
          const request = yield* CurrentRequest
          const grantId = randomUUIDv7()
          const code = newCode(grantId)
          const notice = mail.prepare({
            ...messages.agentLetIn(client.name, member.organization, decision.role, decision.scopes, issuer),
            to: member.email,
            orgId: decision.orgId,
            usefulSeconds: noticeSeconds
          })
          const actor = {
            principal: `user:${decision.userId}`,
            credential: "session",
            operation: "agentGrants.approve",
            requestId: request.id,
            address: request.address,
            outcome: 200
          }
          const [taken] = yield* withPatience(
            orUnavailable(sql<{
              readonly redirectUri: string
              readonly state: string | null
            }>`
            with allowed as materialized (
              select from member m join session s on s.user_id = m.user_id
              where m.org_id = ${decision.orgId}::uuid and m.user_id = ${decision.userId}::uuid
                and (${decision.role} = 'member' or m.role in ('owner', 'admin'))
                and s.id = ${decision.sessionId}::uuid and s.expires_at > now()
            ), taken as (
              delete from authorization_request
              where id = ${id}::uuid and expires_at > now() and exists (select from allowed)
              returning *
            ), issued as (
              insert into authorization_code (org_id, digest, grant_id, user_id, client_id, client_name, redirect_uri,
                challenge, audience, role, scopes, expires_at)
              select ${decision.orgId}::uuid, ${code.digest}::bytea, ${grantId}::uuid, ${decision.userId}::uuid, client_id,
                client_name, redirect_uri, challenge, audience, ${decision.role}::text,
                array(select jsonb_array_elements_text(${sql.json([...decision.scopes].sort())}::jsonb)),
                now() + make_interval(secs => ${codeSeconds}::float8)
              from taken
              returning grant_id as id
            ), told as (
              ${insertMail(sql, notice, sql`exists (select from issued)`)}
            ), audited as (${auditOf(sql, decision.orgId, actor, "issued")})
            select redirect_uri as "redirectUri", state from taken`)
          )
          if (taken !== undefined) return answerTo(taken, { code: Redacted.value(code.token) })
          return yield* Option.isNone(yield* get(id)) ? gone : notAMember
        }),
        deny: Effect.fn("AuthorizationRequests.deny")(function* (id) {
          if (!isId(id)) return yield* gone
          const [taken] = yield* withPatience(
            orUnavailable(sql<{
              readonly redirectUri: string
              readonly state: string | null
            }>`
            delete from authorization_request where id = ${id}::uuid and expires_at > now()
            returning redirect_uri as "redirectUri", state`)
          )
          return taken === undefined ? yield* gone : answerTo(taken, { error: "access_denied" })
        })
      })
    })
  )
}

const notAMember = new NotPermitted({
  message: "Choose an organization where you hold that role, and sign in again if you were signed out."
})

/** What is wrong with a decision on this request, whoever makes it. */
const decisionFault = (
  asked: Pick<PendingRequest, "role" | "scopes">,
  { role, scopes }: Decision
): string | undefined => {
  if (scopes.length === 0) return "Choose at least one operation, or deny the request."
  if (!scopes.every((scope) => asked.scopes.includes(scope)))
    return "More was ticked than the program asked for."
  if (new Set(scopes).size !== scopes.length) return "An operation was ticked twice."
  if (!reaches(asked.role, role)) return "The program asked for a lower role."
  return reaches(role, leastRole(scopes)) ? undefined : "Some of these operations need the role admin."
}
