/** The authorization server's services over a database, and somebody who may let agents in. */
import { createHash, randomBytes } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Access, digestOf } from "#src/access/Access.ts"
import { newSessionToken } from "#src/access/bootstrap.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { AuthorizationRequests } from "#src/agents/AuthorizationRequests.ts"
import { Clients } from "#src/agents/Clients.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Mail } from "#src/mail/Mail.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"

export const issuer = "http://127.0.0.1:8787"

export const world = (variables: Readonly<Record<string, string>> = {}, publicUrl = issuer) =>
  AuthorizationRequests.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(Clients.layer, Mail.layer, RateLimits.layer, Access.layer)),
    Layer.provideMerge(Outbound.layer.pipe(Layer.provideMerge(CertificateAuthority.layer))),
    Layer.provideMerge(PlatformSecrets.layer),
    Layer.provideMerge(Layer.mergeAll(KeyRing.layerEphemeral, testDb())),
    Layer.provideMerge(AppConfig.layerWith({ publicUrl }, { SVC_AGENT_RATE_LIMIT: "100000", ...variables }))
  )

/** A signed-in member of an organization of its own, or of the one given. */
export const makePerson = Effect.fn(function* (
  role: "owner" | "admin" | "member",
  org?: { readonly id: string }
) {
  const { engine: sql } = yield* Db
  const { id: orgId } = org ?? (yield* makeOrganization())
  const [userId, sessionId, token] = [uuid(), uuid(), newSessionToken()]
  const email = `${userId}@example.test`
  yield* Effect.orDie(
    Effect.all([
      sql`insert into account (id, email, name) values (${userId}, ${email}, 'Somebody')`,
      sql`insert into member (org_id, id, user_id, role) values (${orgId}, ${uuid()}, ${userId}, ${role})`,
      sql`insert into session (id, digest, user_id, expires_at)
        values (${sessionId}, ${digestOf(token)}, ${userId}, now() + interval '1 day')`
    ])
  )
  return { orgId, userId, sessionId, token, email }
})

export const makeVerifier = () => {
  const verifier = randomBytes(32).toString("base64url")
  return { verifier, challenge: createHash("sha256").update(verifier).digest("base64url") }
}

/** The query of a request that nothing is wrong with, with these parameters changed or (undefined) left out. */
export const queryOf = (params: Readonly<Record<string, string | undefined>> = {}) => {
  const query = new URLSearchParams()
  const all = {
    response_type: "code",
    client_id: "svc-cli",
    redirect_uri: "http://127.0.0.1:4711/callback",
    state: "a state of theirs",
    code_challenge: makeVerifier().challenge,
    code_challenge_method: "S256",
    scope: "projects.list caches.create",
    ...params
  }
  for (const [name, value] of Object.entries(all)) if (value !== undefined) query.set(name, value)
  return query
}
