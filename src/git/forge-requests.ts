/** Requests to a forge's API by a connection: with its credential, to its address, with answers that are decoded. */
import { createHash, createSign } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { externalCall } from "#src/engine/external-call.ts"
import type { Outbound, OutboundAnswer } from "#src/outbound/Outbound.ts"
import { apiUrl } from "./connection-kinds.ts"
import { ForgeError } from "./ForgeClient.ts"
import type { OpenConnection } from "./GitConnections.ts"

const timeoutMs = 15_000
/** A page of pull requests is the largest: some 20 KB each. */
const maxAnswerBytes = 8 * 1024 * 1024

type Method = "GET" | "POST" | "PUT" | "PATCH"

export interface ForgeRequests {
  readonly get: <A>(path: string, schema: Schema.Codec<A, unknown>) => Effect.Effect<A, ForgeError>
  readonly send: (
    method: Exclude<Method, "GET">,
    path: string,
    body: Readonly<Record<string, unknown>>
  ) => Effect.Effect<void, ForgeError>
  /** As the app itself, which has no repositories; of other kinds the same as `get`. */
  readonly getAsApp: <A>(path: string, schema: Schema.Codec<A, unknown>) => Effect.Effect<A, ForgeError>
  /** What opens the repositories. Of an app one that lasts an hour. */
  readonly token: Effect.Effect<Redacted.Redacted, ForgeError>
}

const InstallationToken = Schema.Struct({ token: Schema.NonEmptyString, expires_at: Schema.String })

/** Tokens of apps by what they were given for, until shortly before they end. */
export interface InstallationTokens {
  readonly get: (key: string, nowMs: number) => Redacted.Redacted | undefined
  readonly set: (key: string, token: Redacted.Redacted, endsMs: number) => void
  readonly drop: (key: string) => void
}

const mostTokens = 1_000
/** What is begun with one lasts no longer. */
const tokenReserveMs = 15 * 60_000

export const makeInstallationTokens = (): InstallationTokens => {
  const kept = new Map<string, { readonly token: Redacted.Redacted; readonly endsMs: number }>()
  return {
    get: (key, nowMs) => {
      const found = kept.get(key)
      if (found === undefined || found.endsMs - tokenReserveMs > nowMs) return found?.token
      kept.delete(key)
      return undefined
    },
    set: (key, token, endsMs) => {
      if (kept.size >= mostTokens) kept.clear()
      kept.set(key, { token, endsMs })
    },
    drop: (key) => void kept.delete(key)
  }
}

/** Apps prove who they are by a signed statement of a few minutes (RFC 7519, RS256). */
const appStatement = (appId: string, privateKey: Redacted.Redacted, nowSeconds: number) =>
  Effect.try({
    try: () => {
      const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")
      // A minute back, for a clock there that is behind.
      const claims = { iss: appId, iat: nowSeconds - 60, exp: nowSeconds + 300 }
      const text = `${part({ alg: "RS256", typ: "JWT" })}.${part(claims)}`
      const signature = createSign("RSA-SHA256").update(text).sign(Redacted.value(privateKey), "base64url")
      return Redacted.make(`${text}.${signature}`)
    },
    catch: () =>
      new ForgeError({
        code: "credential",
        message: "The private key of the app cannot be used: it is no RSA key in PEM"
      })
  })

export const makeForgeRequests = (
  outbound: Outbound["Service"],
  connection: OpenConnection,
  tokens: InstallationTokens
): ForgeRequests => {
  const { kind, url, appId, installationId, secrets } = connection
  // Of another key nothing is known.
  const tokenKey = createHash("sha256")
    .update(JSON.stringify([connection.orgId, connection.id, url, appId, installationId]))
    .update(secrets.privateKey === undefined ? "" : Redacted.value(secrets.privateKey))
    .digest("hex")
  const base = apiUrl(kind, url)

  const headers = (token: Redacted.Redacted, isApp: boolean): Record<string, string> => {
    const value = Redacted.value(token)
    const accept = { accept: "application/json", "content-type": "application/json" }
    if (kind === "gitlab") return { ...accept, "private-token": value }
    if (kind === "gitea" || kind === "forgejo") return { ...accept, authorization: `token ${value}` }
    return {
      "content-type": "application/json",
      accept: "application/vnd.github+json",
      "x-github-api-version": "2022-11-28",
      authorization: `${isApp ? "Bearer" : "token"} ${value}`
    }
  }

  const exchange = Effect.fnUntraced(function* (
    method: Method,
    path: string,
    token: Redacted.Redacted,
    body: unknown,
    isApp = false
  ) {
    const request = { url: `${base}${path}`, headers: headers(token, isApp), timeoutMs, maxAnswerBytes }
    const sent =
      method === "GET"
        ? outbound.get(request)
        : outbound.post({ ...request, method, body: JSON.stringify(body) })
    const answer = yield* Effect.mapError(
      sent,
      ({ message }) =>
        new ForgeError({ code: "unreachable", message: `The forge cannot be asked: ${message}` })
    )
    const refused = refusalOf(answer)
    // It may have been withdrawn.
    if (answer.status === 401) tokens.drop(tokenKey)
    return refused === undefined ? answer : yield* refused
  })

  const statement = Effect.gen(function* () {
    const now = Math.floor((yield* Clock.currentTimeMillis) / 1_000)
    if (appId === null || secrets.privateKey === undefined)
      return yield* new ForgeError({
        code: "credential",
        message: "The connection has no private key of an app"
      })
    return yield* appStatement(appId, secrets.privateKey, now)
  })

  const appToken = Effect.gen(function* () {
    const known = tokens.get(tokenKey, yield* Clock.currentTimeMillis)
    if (known !== undefined) return known
    const path = `/app/installations/${encodeURIComponent(installationId ?? "")}/access_tokens`
    const answer = yield* exchange("POST", path, yield* statement, {}, true)
    const { token: given, expires_at: endsAt } = yield* decoded(answer, InstallationToken)
    const made = Redacted.make(given)
    const endsMs = Date.parse(endsAt)
    if (Number.isFinite(endsMs)) tokens.set(tokenKey, made, endsMs)
    return made
  })
  const token: ForgeRequests["token"] =
    kind === "github_app"
      ? externalCall("forge.token", "read")(appToken)
      : secrets.token === undefined
        ? Effect.fail(new ForgeError({ code: "credential", message: "The connection has no token" }))
        : Effect.succeed(secrets.token)

  return {
    token,
    get: (path, schema) =>
      Effect.flatMap(token, (value) => exchange("GET", path, value, undefined)).pipe(
        externalCall("forge.get", "read"),
        Effect.flatMap((answer) => decoded(answer, schema))
      ),
    getAsApp: (path, schema) =>
      Effect.flatMap(statement, (value) => exchange("GET", path, value, undefined, true)).pipe(
        externalCall("forge.get", "read"),
        Effect.flatMap((answer) => decoded(answer, schema))
      ),
    send: (method, path, body) =>
      Effect.flatMap(token, (value) => exchange(method, path, value, body)).pipe(
        externalCall("forge.send", "write"),
        Effect.asVoid
      )
  }
}

const refusalOf = ({ status, headers }: OutboundAnswer): ForgeError | undefined => {
  if (status >= 200 && status < 300) return undefined
  // GitHub says 403 for both, and that nothing is left of what may be asked only when that is the reason.
  if (
    status === 429 ||
    (status === 403 && (headers["x-ratelimit-remaining"] === "0" || headers["retry-after"] !== undefined))
  )
    return new ForgeError({
      code: "limited",
      message: "The forge takes no more requests of this credential for now"
    })
  if (status === 401 || status === 403)
    return new ForgeError({
      code: "credential",
      message:
        status === 401
          ? "The forge does not take the credential"
          : "The credential may not do this at the forge"
    })
  if (status === 404 || status === 410)
    return new ForgeError({
      code: "missing",
      message: "It is not at the forge, or not shown to this credential"
    })
  return status >= 500 || status < 400
    ? new ForgeError({ code: "unreachable", message: `The forge answered ${status}` })
    : new ForgeError({ code: "rejected", message: `The forge refused it (${status})` })
}

const decoded = <A>(answer: OutboundAnswer, schema: Schema.Codec<A, unknown>) =>
  Schema.decodeUnknownEffect(Schema.fromJsonString(schema))(answer.body).pipe(
    Effect.mapError(
      () => new ForgeError({ code: "unreachable", message: "What answered is not the API of such a forge" })
    )
  )
