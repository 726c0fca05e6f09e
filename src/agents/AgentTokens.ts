/**
 * Codes become tokens, refresh tokens become the next ones, and either ends with its grant. What must hold when two come
 * at once is in functions of the store (0027): of two redemptions or two refreshes one is answered, and the other ends
 * the grant.
 *
 * The new tokens are made before the statement runs. So the statement may be repeated where its answer was lost: it finds
 * its own tokens and answers them again, and there never are two refresh tokens that hold.
 */
import { hash, randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { Fragment } from "effect/sql/Statement"
import { digestOf } from "#src/access/Access.ts"
import type { Audience } from "#src/access/CurrentAudience.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { TokenRefused } from "./errors.ts"
import { withPatience } from "./patience.ts"
import type { GrantRole } from "./scopes.ts"
import { newAccessToken, readCode, refreshTokens } from "./tokens.ts"

export interface IssuedTokens {
  readonly access: Redacted.Redacted
  readonly refresh: Redacted.Redacted
  /** Slug of the organization. */
  readonly organization: string
  readonly role: GrantRole
  readonly scopes: ReadonlyArray<string>
}

/** Seconds. A revocation counts at once, so the one bounds how long a stolen access token is of use unnoticed. */
export const accessSeconds = 3_600
/** From the last refresh on. */
const refreshSeconds = 30 * 86_400

type Outcome = "issued" | "unknown" | "reused" | "other_target" | "other_scope"

const refusals: Readonly<Record<Exclude<Outcome, "issued">, TokenRefused>> = {
  unknown: new TokenRefused({
    error: "invalid_grant",
    message: "It does not hold, or no more; sign in again"
  }),
  reused: new TokenRefused({
    error: "invalid_grant",
    message: "It was used before, so everything that came of it is revoked; sign in again"
  }),
  other_target: new TokenRefused({ error: "invalid_target", message: "It is for another resource" }),
  other_scope: new TokenRefused({ error: "invalid_scope", message: "That is more than was granted" })
}

export class AgentTokens extends Context.Service<
  AgentTokens,
  {
    /** For the code, its PKCE verifier. `redirectUri` and `audience` must be those of the request where they are given. */
    readonly redeem: (asked: {
      readonly code: string
      readonly clientId: string
      readonly verifier: string
      readonly redirectUri: string | undefined
      readonly audience: Audience | undefined
    }) => Effect.Effect<IssuedTokens, TokenRefused | StoreUnavailable>
    /** The scopes, where some are named, must be within those of the grant. Tokens have those of the grant. */
    readonly refresh: (asked: {
      readonly token: string
      readonly clientId: string
      readonly audience: Audience | undefined
      readonly scopes: ReadonlyArray<string> | undefined
    }) => Effect.Effect<IssuedTokens, TokenRefused | StoreUnavailable>
    /** Ends the grant that a token is of, whichever token. What is no token of this client ends nothing. */
    readonly revoke: (token: string, clientId: string) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/agents/AgentTokens") {
  static readonly layer = Layer.effect(
    AgentTokens,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const platform = yield* PlatformSecrets
      const key = yield* platform.ensure(
        "agent-token-key",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )
      const refreshToken = refreshTokens(key)

      /**
       * What an agent did without asking for an operation. `changed` has the organization as `org`, the grant that did it as
       * `actor`, what it did as `operation`, to which grant as `id`, and an `outcome`.
       */
      const audited = Effect.map(
        CurrentRequest,
        ({ id: requestId, address }) =>
          (changed: Fragment): Fragment =>
            sql`
            insert into audit_log (org_id, principal, credential, operation, resource, request_id, address, outcome)
            select org, 'grant:' || actor, 'grant', operation, id::text, ${requestId}::text, ${address}::text, outcome
            from (${changed}) as c`
      )

      /** `call` is a function of the store, with a place for the new tokens at the end of its arguments. */
      const exchange = Effect.fnUntraced(function* (
        operation: string,
        grantId: string,
        told: ReadonlyArray<Outcome>,
        call: (tokens: Fragment) => Fragment
      ) {
        const [access, refresh] = [newAccessToken(), refreshToken.make(grantId)]
        const audit = yield* audited
        const [row] = yield* withPatience(
          repeatable(sql<{
            readonly outcome: Outcome
            readonly organization: string
            readonly scopes: ReadonlyArray<string>
            readonly role: GrantRole
          }>`
          with answer as materialized (
            select * from ${call(sql`${refresh.digest}::bytea, ${refreshSeconds}::float8,
              ${access.digest}::bytea, ${accessSeconds}::float8`)}
          ), told as (${audit(sql`
              select org, ${grantId}::uuid as actor, granted as id,
                case outcome when 'ended' then 'agentGrants.revoke' else ${operation}::text end as operation,
                case when outcome in ('issued', 'ended') then 200 else 400 end as outcome
              from answer where outcome in ${sql.in([...told, "ended"])}`)})
          select outcome, o.slug as organization, within as scopes, as_role as role
          from answer left join organization o on o.id = answer.org where outcome <> 'ended'`)
        )
        if (row === undefined) return yield* Effect.die(new Error("a function of the store answered no row"))
        if (row.outcome !== "issued") return yield* refusals[row.outcome]
        const { organization, role, scopes } = row
        return { access: access.token, refresh: refresh.token, organization, role, scopes }
      })

      return AgentTokens.of({
        redeem: Effect.fn("AgentTokens.redeem")(function* ({ code, clientId, verifier, ...asked }) {
          const presented = readCode(code)
          if (presented === undefined) return yield* refusals.unknown
          const proof = hash("sha256", verifier, "base64url")
          return yield* exchange(
            "agentGrants.redeem",
            presented.grantId,
            ["issued", "reused"],
            (tokens) => sql`svc_redeem_code(${presented.digest}::bytea, ${clientId}::text,
              ${asked.redirectUri ?? null}::text, ${proof}::text, ${asked.audience ?? null}::text, ${tokens})`
          )
        }),
        refresh: Effect.fn("AgentTokens.refresh")(function* ({ token, clientId, audience, scopes }) {
          const presented = refreshToken.read(token)
          if (presented === undefined) return yield* refusals.unknown
          const wanted =
            scopes === undefined
              ? sql`null::text[]`
              : sql`array(select jsonb_array_elements_text(${sql.json(scopes)}::jsonb))`
          return yield* exchange(
            "agentGrants.refresh",
            presented.grantId,
            ["reused"],
            (
              tokens
            ) => sql`svc_refresh_grant(${presented.grantId}::uuid, ${presented.digest}::bytea, ${clientId}::text,
              ${audience ?? null}::text, ${wanted}, ${tokens})`
          )
        }),
        revoke: Effect.fn("AgentTokens.revoke")(function* (token, clientId) {
          const audit = yield* audited
          const grantId = refreshToken.read(token)?.grantId ?? null
          yield* withPatience(
            repeatable(sql`
            with ended as (
              update agent_grant set revoked_at = now()
              where revoked_at is null and client_id = ${clientId}::text and id = coalesce(${grantId}::uuid,
                (select grant_id from agent_access_token where digest = ${digestOf(token)}::bytea))
              returning org_id, id
            ), told as (${audit(sql`
              select org_id as org, id as actor, id, 'agentGrants.revoke' as operation, 200 as outcome from ended`)})
            select from ended`)
          )
        })
      })
    })
  )
}
