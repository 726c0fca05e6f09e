/** Letting agents into the organizations of a test's control plane, without the screen. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { AuthorizationRequests } from "#src/agents/AuthorizationRequests.ts"
import { Clients } from "#src/agents/Clients.ts"
import type { GrantRole } from "#src/agents/scopes.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Mail } from "#src/mail/Mail.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { Plane, type Tenant } from "#test/setup/control-plane.ts"
import { makeVerifier, queryOf } from "./world.ts"

/** The service that the screen uses, on the store of the plane, with so many requests a minute from one network, on a `way` of its own. */
export const requestsWithin = Effect.fnUntraced(function* (rateLimit: number, way?: Redacted.Redacted) {
  const { databaseUrl, dataDir, url } = yield* Plane
  const context = yield* Layer.build(
    AuthorizationRequests.layer.pipe(
      Layer.provide([Clients.layer, Mail.layer, RateLimits.layer]),
      Layer.provide(Outbound.layer),
      Layer.provide(CertificateAuthority.layer),
      Layer.provide(PlatformSecrets.layer),
      Layer.provide([KeyRing.layer, Db.layer({ url: way ?? Redacted.make(databaseUrl) })]),
      Layer.provide(
        AppConfig.layerWith({ publicUrl: url, dataDir }, { SVC_AGENT_RATE_LIMIT: `${rateLimit}` })
      )
    )
  )
  return Context.get(context, AuthorizationRequests)
})

export interface LetIn {
  readonly tenant: Tenant
  readonly who?: "owner" | "admin" | "member"
  readonly role?: GrantRole
  readonly scope?: string
  readonly params?: Readonly<Record<string, string | undefined>>
}

export const requestsOf = requestsWithin(100_000)

/** Asks and approves; answers the parameters that the client gets, and its verifier. */
export const letIn = Effect.fnUntraced(function* (
  requests: AuthorizationRequests["Service"],
  {
    tenant,
    who = "owner",
    role = "admin",
    scope = "me.get projects.list projects.create",
    params = {}
  }: LetIn
) {
  const { sql } = yield* Plane
  const { verifier, challenge } = makeVerifier()
  const digest = digestOf(tenant[who]).toString("hex")
  const [session] = yield* sql(`select id, user_id from session where digest = decode('${digest}', 'hex')`)
  const [sessionId, userId] = [String(session?.["id"]), String(session?.["user_id"])]
  const { id } = yield* Effect.orDie(
    requests.begin(queryOf({ scope, role, code_challenge: challenge, ...params }))
  )
  const decision = { orgId: tenant.id, userId, sessionId, role, scopes: scope.split(" ") }
  const back = new URL(yield* Effect.orDie(requests.approve(id, decision)))
  return { back, code: back.searchParams.get("code") ?? "", verifier, userId }
})

export interface Tokens {
  readonly access: string
  readonly refresh: string
}

/** What a form is answered with. */
export const post = (url: string, path: string, fields: Readonly<Record<string, string>>) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}${path}`, { method: "POST", body: new URLSearchParams(fields) })
    const text = await response.text()
    // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
    const body: any = text.startsWith("{") ? JSON.parse(text) : text
    return { status: response.status, headers: response.headers, body }
  })

export const redeem = (
  url: string,
  code: string,
  verifier: string,
  changed: Readonly<Record<string, string>> = {}
) =>
  post(url, "/oauth/token", {
    grant_type: "authorization_code",
    client_id: "svc-cli",
    code,
    code_verifier: verifier,
    redirect_uri: "http://127.0.0.1:4711/callback",
    ...changed
  })

export const refresh = (url: string, token: string, changed: Readonly<Record<string, string>> = {}) =>
  post(url, "/oauth/token", {
    grant_type: "refresh_token",
    client_id: "svc-cli",
    refresh_token: token,
    ...changed
  })

/** Tokens of a new grant. */
export const tokensFor = Effect.fnUntraced(function* (
  requests: AuthorizationRequests["Service"],
  asked: LetIn
) {
  const { url } = yield* Plane
  const { code, verifier } = yield* letIn(requests, asked)
  const client = asked.params?.["client_id"]
  const redirect = asked.params?.["redirect_uri"]
  const { status, body } = yield* redeem(url, code, verifier, {
    ...(client === undefined ? {} : { client_id: client }),
    ...(redirect === undefined ? {} : { redirect_uri: redirect })
  })
  if (status !== 200) return yield* Effect.die(body)
  const tokens: Tokens = { access: body.access_token, refresh: body.refresh_token }
  return tokens
})
