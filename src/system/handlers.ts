/** Handlers of `system.*` and `me.*`. */
import { createHash } from "node:crypto"
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as OpenApi from "effect/http-api/OpenApi"
import { Access } from "#src/access/Access.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore } from "#src/api/problem.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { manifestJsonSchema } from "#src/manifest/json-schema.ts"
import { Db } from "#src/store/Db.ts"

export const layerSystem = HttpApiBuilder.group(
  Api,
  "system",
  Effect.fnUntraced(function* (handlers) {
    const { api: sql } = yield* Db
    const authority = yield* CertificateAuthority
    const { publicUrl } = yield* AppConfig
    // Rendered once, when somebody asks.
    const document = yield* Effect.cached(
      Effect.sync(() =>
        JSON.parse(JSON.stringify({ ...OpenApi.fromApi(Api), servers: [{ url: publicUrl }] }))
      )
    )
    const manifestSchema = yield* Effect.cached(
      Effect.sync(() => {
        const text = JSON.stringify(manifestJsonSchema())
        const etag = `"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"`
        return HttpServerResponse.text(text, {
          contentType: "application/schema+json",
          headers: { etag, "cache-control": "public, max-age=300" }
        })
      })
    )
    return handlers.handleAll({
      health: () =>
        Effect.map(Effect.isSuccess(Effect.timeout(sql`select 1`, "2 seconds")), (ok) => ({
          ok,
          service: "svc"
        })),
      spec: () => document,
      manifestSchema: () => manifestSchema,
      caCertificate: () => Effect.succeed(authority.caPem)
    })
  })
)

export const layerMe = HttpApiBuilder.group(
  Api,
  "me",
  Effect.fnUntraced(function* (handlers) {
    const access = yield* Access
    return handlers.handleAll(
      handlersOf(Api.groups.me)({
        get: Effect.fnUntraced(function* () {
          const { caller } = yield* RequestScope
          const { credential, credentialId, userId, grant } = caller
          if (credential === "app" || credential === "maintenance")
            return yield* Effect.die(new Error(`${credential} calls nothing but what is for it`))
          const [organizations, { keyName, grantExpiresAt, user }] = yield* Effect.mapError(
            Effect.all(
              [
                access.organizations(credential, credentialId, userId),
                access.describe(credential, credentialId, userId)
              ],
              { concurrency: 2 }
            ),
            fromStore
          )
          return {
            credential,
            credentialId,
            keyName,
            grant:
              grant === undefined || grantExpiresAt === null
                ? null
                : {
                    clientId: grant.clientId,
                    clientName: grant.clientName,
                    audience: grant.audience,
                    scopes: grant.scopes,
                    expiresAt: grantExpiresAt.toISOString()
                  },
            userId,
            user,
            organizations
          }
        })
      })
    )
  })
)
